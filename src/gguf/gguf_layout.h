#pragma once

#include <string>
#include <vector>

#include "hybrid_trainer/core/tensor.h"
#include "hybrid_trainer/models/model_config.h"
#include "src/gguf/gguf_writer.h"

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

/// llama.cpp's name of the model's architecture. Throws DataError, which says why, where it has none
/// that computes what this model does.
std::string gguf_architecture(const ModelConfig& model);

/// The values that tell of the model's sizes. Warns of a window that llama.cpp does not know.
std::vector<GgufPair> gguf_model_values(const ModelConfig& model, const std::string& file);

/// What a tensor of the family's folder is called, without its prefix.
GgufName gguf_name(const ModelConfig& model, const std::string& in_folder);

/// Values in the other place's form: f32 on the host, a copy or the same ones.
Tensor to_gguf(const Tensor& values, const GgufName& name);
Tensor from_gguf(const Tensor& values, const GgufName& name);

/// What the frequencies of Llama 3.1's rotary table are divided by; empty of others.
std::vector<float> rotary_divisors(const ModelConfig& model);

}  // namespace hybrid_trainer
