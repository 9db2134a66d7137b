#pragma once

#include "src/models/hugging_face/config_reader.h"

namespace hybrid_trainer {

/// Reads id2label; by default, num_labels classes (2 if missing) named LABEL_0, …
std::vector<ClassLabel> read_labels(ConfigReader& reader);

void write_labels(json::object& config, const std::vector<ClassLabel>& labels);

}  // namespace hybrid_trainer
