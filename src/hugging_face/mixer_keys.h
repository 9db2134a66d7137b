#pragma once

#include <boost/json.hpp>

#include "hybrid_trainer/models/model_family.h"
#include "src/hugging_face/config_reader.h"

namespace hybrid_trainer {

/// The keys of config.json that tell of mixers other than attention: which layers have which, the
/// heads of Mamba-2 and the limits of its steps. The layout's members are read before.
void read_mixer_keys(ConfigReader& reader, ModelConfig& model, const HuggingFaceLayout& layout);
void write_mixer_keys(boost::json::object& config, const ModelConfig& model,
                      const HuggingFaceLayout& layout);

}  // namespace hybrid_trainer
