#pragma once

#include <filesystem>

namespace hybrid_trainer {

/// Makes the names within a folder durable. Throws IoError.
void sync_folder(const std::filesystem::path& path);

/// Creates the folder and those above it that are missing, and makes their names durable. Throws
/// CannotCreate, or IoError if the disk is full or fails.
void make_folders(const std::filesystem::path& path);

/// Makes everything below the folder durable. Throws IoError.
void sync_tree(const std::filesystem::path& path);

/// Renames the finished folder `from` to `to`. What stands at `to` changes places with it, or goes
/// to `aside` where the file system exchanges nothing. False, with errno set, where that failed;
/// then all is as it was.
bool exchange_folder(const std::filesystem::path& from, const std::filesystem::path& to,
                     const std::filesystem::path& aside);

}  // namespace hybrid_trainer
