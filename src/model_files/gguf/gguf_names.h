#pragma once

#include <span>

#include "hybrid_trainer/core/tensor.h"
#include "hybrid_trainer/models/model_config.h"

namespace hybrid_trainer {

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

/// What a tensor of a model's folder is called, without the folder's prefix. Throws DataError where it has no
/// place in a GGUF file.
GgufName gguf_name(const ModelConfig& model, const std::string& in_folder);

/// Values in the other place's form: f32 on the host, a copy or the same ones.
Tensor to_gguf(const Tensor& values, const GgufName& name);
Tensor from_gguf(const Tensor& values, const GgufName& name);
/// Of kPairedRows the row of the file where a row of the folder stands.
std::int64_t paired_row(std::int64_t row, std::int64_t rows, std::int64_t heads);

/// What the head_size / 2 frequencies of a scaling of type llama3 are divided by: the tensor
/// rope_freqs.weight of a GGUF file.
std::vector<float> llama3_divisors(std::int64_t head_size, double theta,
                                   const RotaryScaling& scaling);

/// The scaling whose divisors these are, by the settings that Llama 3.1 and later ones have; none where
/// they are others'.
std::optional<RotaryScaling> llama3_scaling_of(std::span<const float> divisors, double theta);

}  // namespace hybrid_trainer
