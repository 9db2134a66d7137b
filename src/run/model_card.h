#pragma once

#include <utility>
#include <vector>

#include "src/model_files/model_folder.h"

namespace hybrid_trainer {

/// Keys "license", "license_name" and "license_link" with values, or the first element of lists.
using LicenseTexts = std::vector<std::pair<std::string, std::string>>;

/// Reads a model's license from its card's front matter or the metadata of a GGUF file.
LicenseTexts license_of(const ModelFolder& model);

/// Contents of an exported folder.
enum class CardKind { kModel, kMergedModel, kAdapter };

/// Returns the model card of an export from `source`, a run or a folder: Markdown with front matter
/// as the Hugging Face Hub reads it. Includes the base's name and license if its files name them,
/// and for a run how it was trained. Throws DataError if the run's files are damaged.
std::string model_card(const std::filesystem::path& source, CardKind kind);

/// Writes the card to README.md in the folder. Throws IoError; otherwise as model_card.
void write_model_card(const std::filesystem::path& source, const std::filesystem::path& folder,
                      CardKind kind);

}  // namespace hybrid_trainer
