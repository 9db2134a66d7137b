#pragma once

#include <filesystem>

namespace hybrid_trainer {

/// A folder that appears whole or not at all: it is filled under a hidden name beside its own and
/// renamed by commit(). Without a commit, everything written is removed.
class OutputFolder {
 public:
  enum class Existing { kRefuse, kReplace };  // a folder that is there and not empty
  /// Throws CannotCreate if `path` cannot be looked at.
  OutputFolder(const std::filesystem::path& path, Existing existing);
  ~OutputFolder();
  OutputFolder(const OutputFolder&) = delete;
  OutputFolder& operator=(const OutputFolder&) = delete;

  /// Its absolute name, with links resolved.
  const std::filesystem::path& path() const { return path_; }
  /// Throws CannotCreate for Existing::kRefuse where there is anything but an empty folder, and where
  /// the folder above cannot be written to.
  void require_free() const;
  /// Creates the folder to fill, and removes those beside it of this host's processes that ended
  /// before their commit. Throws CannotCreate, also as require_free.
  const std::filesystem::path& create();
  /// Makes it durable under its name; at every moment the old folder or the new one is whole.
  /// Throws CannotCreate where something has come to stand there that may not be replaced, IoError.
  void commit();

 private:
  std::filesystem::path path_;
  std::filesystem::path partial_;
  Existing existing_;
};

}  // namespace hybrid_trainer
