#pragma once

#include <functional>
#include <utility>

#include "hybrid_trainer/core/tensor.h"
#include "src/gguf/gguf_file.h"

namespace hybrid_trainer {

using GgufPair = std::pair<std::string, GgufValue>;

GgufPair gguf_text(std::string key, std::string value);
GgufPair gguf_flag(std::string key, bool value);
GgufPair gguf_count(std::string key, std::int64_t value);  // u32
GgufPair gguf_number(std::string key, double value);       // f32
GgufPair gguf_texts(std::string key, std::vector<std::string> values);
GgufPair gguf_numbers(std::string key, std::vector<double> values);         // f32
GgufPair gguf_integers(std::string key, std::vector<std::int64_t> values);  // i32
GgufPair gguf_flags(std::string key, std::vector<bool> values);
GgufPair gguf_bytes(std::string key, std::string_view values);  // u8

/// Tensors to write, with their shapes and types in the file. Consecutive tensors of one name are
/// stacked along an additional first dimension. Offsets are ignored.
using GgufPlan = std::vector<GgufTensor>;

/// Calls visit(tensor in the file, number of tensors of the plan that form it) in order.
void for_each_stacked(const GgufPlan& plan,
                      const std::function<void(const GgufTensor&, std::size_t)>& visit);

/// Writes a file. `value_of` returns the values of the plan's tensors, f32 on the host, in order. At
/// most one of them is in memory. The file is created atomically. Throws CannotCreate if it exists. Also throws IoError and DataError.
void write_gguf(const std::filesystem::path& path, const std::vector<GgufPair>& values,
                const GgufPlan& tensors, const std::function<Tensor(std::size_t i)>& value_of);

}  // namespace hybrid_trainer
