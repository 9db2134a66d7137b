#pragma once

#include <filesystem>

namespace hybrid_trainer {

/// A folder that appears whole or not at all: it is filled under a temporary name beside its own
/// and renamed by commit(). Without a commit, everything written is removed.
class OutputFolder {
 public:
  enum class Existing { kRefuse, kReplaceData };
  /// Throws CannotCreate if `path` cannot be looked at, is a file, or a folder that is not empty;
  /// with kReplaceData a folder that holds a data.json, and nothing but what `hybrid prepare`
  /// writes, is allowed, and commit() removes it.
  OutputFolder(const std::filesystem::path& path, Existing existing);
  ~OutputFolder();
  OutputFolder(const OutputFolder&) = delete;
  OutputFolder& operator=(const OutputFolder&) = delete;

  /// Creates the folder to fill, and removes those beside it of processes that ended before their
  /// commit. Throws CannotCreate.
  const std::filesystem::path& create();
  /// Throws IoError.
  void commit();

 private:
  std::filesystem::path path_;
  std::filesystem::path partial_;
};

}  // namespace hybrid_trainer
