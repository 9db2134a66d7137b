#pragma once

#include <sys/types.h>

#include <cstddef>

namespace hybrid_trainer {

/// Reads and writes of a file past the system's page cache (O_DIRECT), in whole pages between
/// addresses of whole pages; what mappings of the file hold of those pages is written out before, or
/// dropped, by the system. Thread-safe.
class DirectFile {
 public:
  static constexpr std::size_t kPage = 4096;
  /// Of an open file, of whose folder the file system may have no such way.
  explicit DirectFile(int file);
  ~DirectFile();
  DirectFile(const DirectFile&) = delete;
  DirectFile& operator=(const DirectFile&) = delete;
  bool available() const { return file_ >= 0; }
  /// False where the file system does not move these so. Throws IoError.
  bool read(void* to, off_t at, std::size_t bytes) const;
  bool write(const void* from, off_t at, std::size_t bytes) const;

 private:
  int file_;
};

}  // namespace hybrid_trainer
