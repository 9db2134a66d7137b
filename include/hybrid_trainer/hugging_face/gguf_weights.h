#pragma once

#include <filesystem>
#include <functional>

#include "hybrid_trainer/hugging_face/folder_weight.h"
#include "hybrid_trainer/models/language_model.h"

namespace hybrid_trainer {

/// Calls visit(parameter, weight) for each weight of a model that a GGUF file holds, whatever family the
/// file's values tell of; adapters are left out. Throws DataError
/// where a tensor is missing, of another shape, or belongs to no part of the model; IoError.
void visit_gguf_weights(const std::filesystem::path& file, Network& network,
                        const ModelConfig& model,
                        const std::function<void(Parameter&, const FolderWeight&)>& visit);

/// Whether a model's path is that of a GGUF file.
bool is_gguf_file(const std::filesystem::path& model);

/// Whether nine tenths of the numbers of its matrices are in blocks of few bits.
bool is_mostly_blocks(const std::filesystem::path& file);

/// Whether all matrices of the file are bf16.
bool is_all_bf16(const std::filesystem::path& file);

}  // namespace hybrid_trainer
