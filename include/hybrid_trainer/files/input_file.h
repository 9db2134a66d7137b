#pragma once

#include <cstddef>
#include <filesystem>
#include <string>

#include "hybrid_trainer/files/file_descriptor.h"

namespace hybrid_trainer {

/// A regular file open for reading, by offset and from several threads at once. It is not
/// memory-mapped, so that a file truncated by another program is an error like any other.
class InputFile {
 public:
  /// Throws MissingInput if it cannot be opened, DataError if it is no regular file.
  explicit InputFile(std::filesystem::path path);
  const std::filesystem::path& path() const { return path_; }
  /// Its size when opened.
  std::size_t bytes() const { return bytes_; }
  /// Reads exactly `bytes` at `offset`. Throws IoError, also if the file ends before.
  void read_at(void* to, std::size_t bytes, std::size_t offset) const;

 private:
  std::filesystem::path path_;
  FileDescriptor file_;
  std::size_t bytes_ = 0;
};

/// The bytes of a regular file. Throws MissingInput where it is absent or cannot be read, DataError
/// where it is no regular file or has more than `max_bytes`, IoError.
std::string read_file(const std::filesystem::path& path, std::size_t max_bytes);

}  // namespace hybrid_trainer
