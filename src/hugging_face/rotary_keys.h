#pragma once

#include "src/hugging_face/config_reader.h"

namespace hybrid_trainer {

/// Reads how positions rotate and which layers have a window, in the keys of transformers 4
/// (rope_theta, rope_scaling) or 5 (rope_parameters, for Gemma 3 by layer types).
void read_rotary_keys(ConfigReader& reader, ModelConfig& model, const HuggingFaceLayout& layout);

/// Writes it in the keys of transformers 4, which 5 reads as well.
void write_rotary_keys(boost::json::object& config, const ModelConfig& model,
                       const HuggingFaceLayout& layout);

}  // namespace hybrid_trainer
