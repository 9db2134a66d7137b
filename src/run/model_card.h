#pragma once

#include <utility>
#include <vector>

#include "src/model_files/model_folder.h"

namespace hybrid_trainer {

/// The keys "license", "license_name" and "license_link" with their values. The value of a list is
/// its first element.
using LicenseTexts = std::vector<std::pair<std::string, std::string>>;

/// Reads a model's license from its card's front matter or the metadata of a GGUF file.
LicenseTexts license_of(const ModelFolder& model);

enum class CardKind { kModel, kMergedModel, kAdapter };

/// Returns the model card of an export from a run or folder: Markdown with front matter for the
/// Hugging Face Hub. Includes the base's name and license, if known, and a run's training. Throws
/// DataError if the run's files are damaged.
std::string model_card(const std::filesystem::path& source, CardKind kind);

/// Writes the card to README.md in the folder. Throws IoError; otherwise as model_card.
void write_model_card(const std::filesystem::path& source, const std::filesystem::path& folder,
                      CardKind kind);

}  // namespace hybrid_trainer
