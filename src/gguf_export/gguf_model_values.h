#pragma once

#include <string>
#include <vector>

#include "hybrid_trainer/gguf/gguf_names.h"
#include "hybrid_trainer/gguf/gguf_writer.h"
#include "hybrid_trainer/models/model_config.h"

namespace hybrid_trainer {

/// llama.cpp's name of the model's architecture. Throws DataError, which says why, where it has none
/// that computes what this model does.
std::string gguf_architecture(const ModelConfig& model);

/// The values that tell of the model's sizes. Warns of a window that llama.cpp does not know.
std::vector<GgufPair> gguf_model_values(const ModelConfig& model, const std::string& file);

/// What a tensor of the family's folder is called, without its prefix.
GgufName gguf_name(const ModelConfig& model, const std::string& in_folder);

/// What a tensor of the family's folder is called, without its prefix.
GgufName name_of_tensor(const ModelConfig& model, const std::string& in_folder);

/// What the frequencies of Llama 3.1's rotary table are divided by; empty of others.
std::vector<float> rotary_divisors(const ModelConfig& model);

}  // namespace hybrid_trainer
