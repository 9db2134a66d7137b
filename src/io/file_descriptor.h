#pragma once

#include <cstddef>
#include <functional>
#include <string>
#include <utility>

#include "hybrid_trainer/io/checksum.h"

namespace hybrid_trainer {

/// Owner of an open file.
class FileDescriptor {
 public:
  FileDescriptor() = default;
  explicit FileDescriptor(int number) : number_(number) {}
  FileDescriptor(FileDescriptor&& other) noexcept : number_(std::exchange(other.number_, -1)) {}
  FileDescriptor& operator=(FileDescriptor&& other) noexcept {
    std::swap(number_, other.number_);
    return *this;
  }
  ~FileDescriptor();
  int number() const { return number_; }
  /// Closes now. Throws IoError, which names `path`.
  void close(const std::string& path);

 private:
  int number_ = -1;
};

/// "path: what failed: No space left on device", from errno.
std::string system_problem(const std::string& path, const char* what_failed);

/// Opens a regular file for reading and returns its size. Throws MissingInput, or DataError if it
/// is a folder or a pipe.
std::pair<FileDescriptor, std::size_t> open_regular_file(const std::string& path);

/// Reads exactly `bytes` at `offset`. Throws IoError, also if the file ends before.
void read_at(const FileDescriptor& file, const std::string& path, void* to, std::size_t bytes,
             std::size_t offset);

/// Makes the names within a folder durable. Throws IoError.
void sync_folder(const std::string& path);

/// Creates the folder and those above it that are missing, and makes their names durable. Throws
/// IoError or std::filesystem::filesystem_error.
void make_folders(const std::string& path);

/// Writes a new file from start to end, computing its checksum on the way.
class FileWriter {
 public:
  /// Creates or empties `path`. Throws IoError.
  explicit FileWriter(std::string path);
  void append(const void* data, std::size_t bytes);
  /// fsync and close. Throws IoError. Without this call the file's content must not be trusted.
  FileDigest finish();

 private:
  std::string path_;
  FileDescriptor file_;
  Checksum checksum_;
  std::size_t bytes_ = 0;
};

/// Replaces `path` by what `write` appends: temporary file beside it, fsync, rename, fsync of the
/// folder. Throws IoError and then leaves an old file at `path` as it was, or the new one if only
/// the last fsync failed.
FileDigest write_atomically(const std::string& path, const std::function<void(FileWriter&)>& write);

/// Size and checksum of a file as it is now.
FileDigest digest_of_file(const std::string& path);

}  // namespace hybrid_trainer
