#pragma once

#include "src/models/hugging_face/config_reader.h"

namespace hybrid_trainer {

/// Reads the classes from id2label. Without it, there are num_labels (or two) classes LABEL_0, …,
/// as in transformers.
std::vector<ClassLabel> read_labels(ConfigReader& reader);

/// Writes id2label and label2id.
void write_labels(boost::json::object& config, const std::vector<ClassLabel>& labels);

}  // namespace hybrid_trainer
