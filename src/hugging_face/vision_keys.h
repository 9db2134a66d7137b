#pragma once

#include "src/hugging_face/config_reader.h"

namespace hybrid_trainer {

/// Reads image_size and patch_size, each a number or two equal ones, and the classes by id2label; without
/// it they are called LABEL_0 and so on, num_labels of them or two, as transformers does.
void read_vision_keys(ConfigReader& reader, ModelConfig& model, const HuggingFaceLayout& layout);
void write_vision_keys(boost::json::object& config, const ModelConfig& model,
                       const HuggingFaceLayout& layout);

/// Whether the folder's model tells other classes apart than ours, so that its head says nothing.
bool has_other_labels(const ModelConfig& theirs, const ModelConfig& ours);

}  // namespace hybrid_trainer
