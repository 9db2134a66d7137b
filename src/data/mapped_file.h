#pragma once

#include <cstddef>
#include <filesystem>

namespace hybrid_trainer {

/// A whole file mapped for reading. Throws MissingInput where it cannot be opened, IoError where it
/// cannot be mapped.
class MappedFile {
 public:
  explicit MappedFile(const std::filesystem::path& path);
  ~MappedFile();
  MappedFile(const MappedFile&) = delete;
  MappedFile& operator=(const MappedFile&) = delete;
  const void* data() const { return data_; }
  std::size_t bytes() const { return bytes_; }

 private:
  void* data_ = nullptr;  // null for an empty file
  std::size_t bytes_ = 0;
};

}  // namespace hybrid_trainer
