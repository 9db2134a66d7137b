#pragma once

#include <filesystem>
#include <string>

namespace hybrid_trainer {

/// The license of a model by its own card's front matter, or a GGUF file's values; "" if neither says it.
std::string license_of(const std::filesystem::path& model);

/// What an exported folder holds.
enum class CardKind { kModel, kMergedModel, kAdapter };

/// The model card of what was exported of `source`, a run or a folder: Markdown behind front matter as the
/// Hugging Face Hub reads it. The base's name and license are told where its files tell them; of
/// a run also how it was trained. Throws DataError where the run's files are damaged.
std::string model_card(const std::filesystem::path& source, CardKind kind);

/// Writes it as README.md into the folder. Throws IoError, and as model_card.
void write_model_card(const std::filesystem::path& source, const std::filesystem::path& folder,
                      CardKind kind);

}  // namespace hybrid_trainer
