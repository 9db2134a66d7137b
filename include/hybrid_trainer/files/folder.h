#pragma once

#include <filesystem>

namespace hybrid_trainer {

/// Makes the names within a folder durable. Throws IoError.
void sync_folder(const std::filesystem::path& path);

/// Creates the folder and those above it that are missing, and makes their names durable. Throws
/// IoError or std::filesystem::filesystem_error.
void make_folders(const std::filesystem::path& path);

}  // namespace hybrid_trainer
