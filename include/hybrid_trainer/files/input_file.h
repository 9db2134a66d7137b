#pragma once

#include <cstddef>
#include <filesystem>
#include <memory>
#include <optional>
#include <string>
#include <string_view>
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

/// A file, or some bytes within one, as a table holds them.
struct FilePart {
  FilePart(std::filesystem::path whole = {})  // NOLINT: a path is a whole file
      : path(std::move(whole)), name(path.native()) {}
  std::filesystem::path path;
  std::string name;                                 // in messages
  std::shared_ptr<const FileDescriptor> unnamed{};  // open in place of `path`
  std::size_t offset = 0;
  std::optional<std::size_t> bytes{};  // absent: up to the file's end

  const std::string& native() const { return name; }
};

/// Bytes that are kept outside memory, in a file without a name.
class ScratchFile {
 public:
  /// Takes a file in the system's folder for temporary files. Throws IoError.
  ScratchFile();
  /// `name`: of the part in messages. Throws IoError.
  FilePart add(std::string_view bytes, const std::string& name);

 private:
  std::shared_ptr<const FileDescriptor> file_;
  std::size_t bytes_ = 0;
};

/// A regular file open for reading, by offset and from several threads at once. It is not
/// memory-mapped, so that a file truncated by another program is an error like any other.
class InputFile {
 public:
  /// Throws MissingInput if it cannot be opened, DataError if it is no regular file.
  explicit InputFile(std::filesystem::path path);
  /// Offsets count from the part's begin.
  explicit InputFile(const FilePart& part);
  /// Of a part its name.
  const std::filesystem::path& path() const { return path_; }
  /// Its size when opened.
  std::size_t bytes() const { return bytes_; }
  /// Reads exactly `bytes` at `offset`. Throws IoError, also if the file ends before.
  void read_at(void* to, std::size_t bytes, std::size_t offset) const;

 private:
  std::filesystem::path path_;
  FileDescriptor file_;
  std::size_t begin_ = 0, bytes_ = 0;
};

/// The bytes of a regular file. Throws MissingInput where it is absent or cannot be read, DataError
/// where it is no regular file or has more than `max_bytes`, IoError.
std::string read_file(const std::filesystem::path& path, std::size_t max_bytes);
std::string read_file(const FilePart& part, std::size_t max_bytes);

}  // namespace hybrid_trainer
