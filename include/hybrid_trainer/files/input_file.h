#pragma once

#include <cstddef>
#include <filesystem>
#include <memory>
#include <optional>
#include <string>
#include <string_view>
#include <utility>

namespace hybrid_trainer {

/// Maximum bytes per read or write call, so that progress is visible on a slow disk.
inline constexpr std::size_t kMaxBytesAtOnce = std::size_t{64} << 20;

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
  /// Closes the file. Throws IoError naming `path`.
  void close(const std::filesystem::path& path);

 private:
  int number_ = -1;
};

/// Returns a message such as "path: what failed: No space left on device", from errno.
std::string system_problem(const std::filesystem::path& path, const char* what_failed);

/// Throws IoError for a full or failing disk or too many open files, else CannotCreate.
[[noreturn]] void throw_cannot_create(int code, const std::string& problem);

/// A file, or a byte range within one.
struct FilePart {
  FilePart(std::filesystem::path whole = {})  // NOLINT: a path is a whole file
      : path(std::move(whole)), name(path.native()) {}
  std::filesystem::path path;
  std::string name;                                 // name in messages
  std::shared_ptr<const FileDescriptor> unnamed{};  // open nameless file, in place of `path`
  std::size_t offset = 0;
  std::optional<std::size_t> bytes{};  // none: up to the file's end

  const std::string& native() const { return name; }
};

/// Bytes stored outside memory, in a file without a name.
class ScratchFile {
 public:
  /// Creates a file in the system's folder for temporary files. Throws IoError.
  ScratchFile();
  /// Appends `bytes` and returns the part of the file that contains them. Messages call it `name`.
  /// Throws IoError.
  FilePart add(std::string_view bytes, const std::string& name);

 private:
  std::shared_ptr<const FileDescriptor> file_;
  std::size_t bytes_ = 0;
};

/// A regular file open for reading at any offset. Thread-safe. Not memory-mapped, so that a file
/// truncated by another program is an ordinary error.
class InputFile {
 public:
  /// Throws MissingInput if the file cannot be opened, DataError if it is not a regular file.
  explicit InputFile(std::filesystem::path path);
  /// Opens a part. Offsets count from its start.
  explicit InputFile(const FilePart& part);
  /// Returns the path, or the name of a part.
  const std::filesystem::path& path() const { return path_; }
  /// Returns the size when the file was opened.
  std::size_t bytes() const { return bytes_; }
  /// Reads exactly `bytes` at `offset`. Throws IoError, including if the file ends earlier.
  void read_at(void* to, std::size_t bytes, std::size_t offset) const;

 private:
  std::filesystem::path path_;
  FileDescriptor file_;
  std::size_t begin_ = 0, bytes_ = 0;
};

/// Returns the bytes of a regular file. Throws MissingInput if it is absent or cannot be opened,
/// DataError if it is not a regular file or exceeds `max_bytes`, and IoError if reading fails.
std::string read_file(const std::filesystem::path& path, std::size_t max_bytes);
std::string read_file(const FilePart& part, std::size_t max_bytes);

}  // namespace hybrid_trainer
