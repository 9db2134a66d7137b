#pragma once

#include <cstdio>
#include <filesystem>
#include <span>
#include <string>
#include <string_view>

namespace hybrid_trainer {

/// The whole file. Throws MissingInput if it cannot be opened, DataError if it is not a regular
/// file or is over `limit_bytes`, IoError.
std::string read_file(const std::filesystem::path& path, std::size_t limit_bytes);

/// A regular file open for reading, by offset and from several threads at once. It is not
/// memory-mapped, so that a file truncated by another program is an error like any other.
class InputFile {
 public:
  /// Throws MissingInput if it cannot be opened, DataError if it is not a regular file.
  explicit InputFile(std::filesystem::path path);
  ~InputFile();
  InputFile(const InputFile&) = delete;
  InputFile& operator=(const InputFile&) = delete;
  /// Its size when opened.
  std::size_t bytes() const { return bytes_; }
  /// Reads exactly `bytes` at `offset`. Throws IoError, also if the file ends before.
  void read_at(void* to, std::size_t bytes, std::size_t offset) const;

 private:
  std::filesystem::path path_;
  int file_;
  std::size_t bytes_ = 0;
};

/// A file being written; every failure is an IoError with its name and the system's reason.
class OutputFile {
 public:
  explicit OutputFile(std::filesystem::path path);
  ~OutputFile();
  OutputFile(const OutputFile&) = delete;
  OutputFile& operator=(const OutputFile&) = delete;
  void write(const void* data, std::size_t bytes);
  void write(std::string_view text) { write(text.data(), text.size()); }
  void write_at_start(const void* data, std::size_t bytes);
  void close();

 private:
  [[noreturn]] void fail(const char* what) const;
  std::filesystem::path path_;
  std::FILE* file_;
};

}  // namespace hybrid_trainer
