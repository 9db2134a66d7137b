#pragma once

#include <boost/json.hpp>

#include "hybrid_trainer/models/model_family.h"
#include "src/model_files/hugging_face/config_reader.h"

namespace hybrid_trainer {

/// Reads how positions rotate and which layers have a window, in the keys of transformers 4
/// (rope_theta, rope_scaling) or 5 (rope_parameters, for Gemma 3 by layer types).
void read_rotary_keys(ConfigReader& reader, ModelConfig& model, const HuggingFaceLayout& layout);

/// Writes it in the keys of transformers 4, which 5 reads as well.
void write_rotary_keys(boost::json::object& config, const ModelConfig& model,
                       const HuggingFaceLayout& layout);

/// The keys of config.json that tell of mixers other than attention: which layers have which, the
/// heads of Mamba-2 and the limits of its steps. The layout's members are read before.
void read_mixer_keys(ConfigReader& reader, ModelConfig& model, const HuggingFaceLayout& layout);
void write_mixer_keys(boost::json::object& config, const ModelConfig& model,
                      const HuggingFaceLayout& layout);

/// The keys of config.json that tell of experts: how many there are and are chosen, how wide they are,
/// how their weights are made, which layers have them, and the loss that balances them. The layout's
/// members are read before.
void read_expert_keys(ConfigReader& reader, ModelConfig& model, const HuggingFaceLayout& layout);
/// Throws DataError where a folder cannot tell of the model's experts.
void write_expert_keys(boost::json::object& config, const ModelConfig& model,
                       const HuggingFaceLayout& layout);

}  // namespace hybrid_trainer
