#pragma once

#include <boost/json.hpp>

#include "hybrid_trainer/models/model_family.h"
#include "src/hugging_face/config_reader.h"

namespace hybrid_trainer {

/// The keys of config.json that tell of experts: how many there are and are chosen, how wide they are,
/// how their weights are made, which layers have them, and the loss that balances them. The layout's
/// members are read before.
void read_expert_keys(ConfigReader& reader, ModelConfig& model, const HuggingFaceLayout& layout);
/// Throws DataError where a folder cannot tell of the model's experts.
void write_expert_keys(boost::json::object& config, const ModelConfig& model,
                       const HuggingFaceLayout& layout);

}  // namespace hybrid_trainer
