#pragma once

#include <optional>
#include <span>
#include <string_view>
#include <vector>

#include "hybrid_trainer/core/tensor.h"

namespace hybrid_trainer {

/// A family of models, and what llama.cpp calls it.
struct GgufArchitecture {
  std::string_view family, name;
  bool is_gemma = false;    // 1 is added to the gains of norms
  bool pairs_rows = false;  // rows of queries and keys stand in pairs
};

/// Null where llama.cpp has no such architecture.
const GgufArchitecture* gguf_architecture_of_family(std::string_view family);
/// The first family whose models have this architecture, or null.
const GgufArchitecture* gguf_architecture_of_name(std::string_view name);
/// The names of all architectures, for messages.
std::string gguf_architectures_text();
std::string gguf_families_text();

/// How values stand in a GGUF file beside a Hugging Face folder's.
enum class GgufChange {
  kNone,
  kPairedRows,  // of each head: row j and row j + D/2 stand beside each other
  kOnePlus,     // 1 is added: gains of norms that multiply by 1 + w
};

struct GgufName {
  std::string name;
  GgufChange change = GgufChange::kNone;
  std::int64_t heads = 1;  // of kPairedRows
};

/// What a tensor of a Hugging Face folder is called, where the folder's name has no prefix. Throws DataError where it
/// has no place in a GGUF file.
GgufName gguf_name(const GgufArchitecture& architecture, std::int64_t heads, std::int64_t key_heads,
                   const std::string& in_folder);

/// Values in the other place's form: f32 on the host, a copy or the same ones.
Tensor to_gguf(const Tensor& values, const GgufName& name);
Tensor from_gguf(const Tensor& values, const GgufName& name);
/// Of kPairedRows the row of the file where a row of the folder stands.
std::int64_t paired_row(std::int64_t row, std::int64_t rows, std::int64_t heads);

/// How Llama 3.1 turns longer texts: frequencies below low_frequency turns in the original context are
/// divided by factor, those above high_frequency are kept, those between are mixed of both.
struct Llama3Rotation {
  std::int64_t head_size = 0;
  double theta = 1e4, factor = 1, low_frequency = 1, high_frequency = 4;
  std::int64_t original_context = 0;
};

/// What the head_size / 2 frequencies are divided by: the tensor rope_freqs.weight of a GGUF file.
std::vector<float> llama3_divisors(const Llama3Rotation& rotation);

/// The rotation whose divisors these are, by the settings that Llama 3.1 and later ones have; none where
/// they are others'.
std::optional<Llama3Rotation> llama3_rotation_of(std::span<const float> divisors, double theta);

}  // namespace hybrid_trainer
