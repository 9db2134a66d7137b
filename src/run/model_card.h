#pragma once

#include <utility>
#include <vector>

#include "src/model_files/model_folder.h"

namespace hybrid_trainer {

/// Texts under "license", "license_name" and "license_link"; of a list its first.
using LicenseTexts = std::vector<std::pair<std::string, std::string>>;

/// The license of a model by its own card's front matter, or a GGUF file's values.
LicenseTexts license_of(const ModelFolder& model);

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
