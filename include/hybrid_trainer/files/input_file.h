#pragma once

#include <cstddef>
#include <filesystem>
#include <memory>
#include <optional>
#include <string>
#include <string_view>
#include <utility>

#include "hybrid_trainer/files/file_descriptor.h"

namespace hybrid_trainer {

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
