#pragma once

#include <filesystem>
#include <optional>

#include "hybrid_trainer/fine_tuning/example_rows.h"
#include "hybrid_trainer/generation/source_writer.h"

namespace hybrid_trainer {

/// How rows become what an encoder of tokens reads and what its decoder writes, by the folder of its
/// tokenizer; none for a model without such an encoder. Throws DataError where the folder names no start
/// token.
std::optional<SourceFormat> source_format_of(const ModelConfig& model,
                                             const std::filesystem::path& folder);

/// How such a model writes, by the folder's generation_config.json and config.json: at most as many tokens
/// as its decoder's context. Throws DataError where they name no start token.
SourceWriting source_writing_of(const ModelConfig& model, const std::filesystem::path& folder);

}  // namespace hybrid_trainer
