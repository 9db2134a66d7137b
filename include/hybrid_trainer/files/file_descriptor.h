#pragma once

#include <cstddef>
#include <filesystem>
#include <string>
#include <utility>

namespace hybrid_trainer {

/// Read or written by one call, so that progress is seen on a slow disk.
inline constexpr std::size_t kMostBytesAtOnce = std::size_t{64} << 20;

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
  void close(const std::filesystem::path& path);

 private:
  int number_ = -1;
};

/// "path: what failed: No space left on device", from errno.
std::string system_problem(const std::filesystem::path& path, const char* what_failed);

/// Throws CannotCreate, or IoError if `code` of errno says that the disk is full or fails, or that too
/// many files are open.
[[noreturn]] void throw_cannot_create(int code, const std::string& problem);

}  // namespace hybrid_trainer
