#pragma once

#include <functional>
#include <utility>

#include "src/gguf/gguf_file.h"

namespace hybrid_trainer {

using GgufPair = std::pair<std::string, GgufValue>;

template <GgufKind kKind, class T>
GgufPair gguf_pair(std::string key, T value) {
  return {std::move(key), {kKind, std::move(value)}};
}
inline constexpr auto gguf_text = gguf_pair<GgufKind::kString, std::string>;
inline constexpr auto gguf_flag = gguf_pair<GgufKind::kBool, bool>;
inline constexpr auto gguf_number = gguf_pair<GgufKind::kF32, double>;
inline constexpr auto gguf_texts = gguf_pair<GgufKind::kString, std::vector<std::string>>;
inline constexpr auto gguf_numbers = gguf_pair<GgufKind::kF32, std::vector<double>>;
inline constexpr auto gguf_integers = gguf_pair<GgufKind::kI32, std::vector<std::int64_t>>;
inline constexpr auto gguf_flags = gguf_pair<GgufKind::kBool, std::vector<bool>>;
GgufPair gguf_count(std::string key, std::int64_t value);       // u32
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
