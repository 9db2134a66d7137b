#pragma once

#include <functional>

#include "src/model_files/hugging_face/folder_weights.h"

namespace hybrid_trainer {

/// Weights of sentence-transformers modules after pooling, which are in folders of their own. Such
/// a tensor is named "2_Dense/linear.weight".

bool is_of_module(const std::string& name);
bool is_of_module(const Parameter& parameter);

/// Returns whether the folder has the module of a weight (its config.json).
bool holds_module(const fs::path& folder, const Parameter& parameter);

/// Calls use(weight) with the values in the folder. Throws MissingInput, DataError.
void read_module_weight(const fs::path& folder, const Parameter& parameter,
                        const std::function<void(const FolderWeight& weight)>& use);

/// Writes a model.safetensors to each module's folder. Throws IoError.
void write_module_weights(const std::vector<NamedTensor>& tensors, const fs::path& folder);

}  // namespace hybrid_trainer
