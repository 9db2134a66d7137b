#pragma once

#include <span>

#include "hybrid_trainer/core/tensor.h"
#include "hybrid_trainer/models/model_config.h"

namespace hybrid_trainer {

/// Difference between values in a GGUF file and in a Hugging Face folder.
enum class GgufChange {
  kNone,
  kPairedRows,  // in each head, rows j and j + D/2 are adjacent
  kOnePlus,     // stores w + 1 for norm gains that multiply by 1 + w
};

struct GgufName {
  std::string name;
  GgufChange change = GgufChange::kNone;
  std::int64_t heads = 1;  // for kPairedRows
};

/// Returns the GGUF name of a folder's tensor, given without prefix. Throws DataError without one.
GgufName gguf_name(const ModelConfig& model, const std::string& in_folder);

/// Convert f32 host values to or from GGUF's format. Return a copy, or the same tensor if equal.
Tensor to_gguf(const Tensor& values, const GgufName& name);
Tensor from_gguf(const Tensor& values, const GgufName& name);
/// Returns the file's row for a row of the folder, for kPairedRows.
std::int64_t paired_row(std::int64_t row, std::int64_t rows, std::int64_t heads);

/// Returns the divisors of head_size / 2 frequencies in llama3 scaling: GGUF's rope_freqs.weight.
std::vector<float> llama3_divisors(std::int64_t head_size, double theta,
                                   const RotaryScaling& scaling);

/// Returns the llama3 scaling with these divisors, as Llama 3.1 and later models use, or none.
std::optional<RotaryScaling> llama3_scaling_of(std::span<const float> divisors, double theta);

}  // namespace hybrid_trainer
