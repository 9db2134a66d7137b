#pragma once

#include <cstdio>
#include <filesystem>
#include <span>
#include <string>
#include <string_view>

namespace hybrid_trainer {

/// The whole file. Throws MissingInput where it cannot be opened, DataError where it is no regular
/// file or over `limit_bytes`, IoError.
std::string read_file(const std::filesystem::path& path, std::size_t limit_bytes);

/// A regular file that is open for reading, by offset and from several threads at once. What it
/// holds is not kept in memory, so that a file cut short by another program is an error like any
/// other.
class InputFile {
 public:
  /// Throws MissingInput where it cannot be opened, DataError where it is no regular file.
  explicit InputFile(std::filesystem::path path);
  ~InputFile();
  InputFile(const InputFile&) = delete;
  InputFile& operator=(const InputFile&) = delete;
  /// Its size when it was opened.
  std::size_t bytes() const { return bytes_; }
  /// Reads exactly `bytes` at `offset`. Throws IoError, also where the file ends before.
  void read_at(void* to, std::size_t bytes, std::size_t offset) const;

 private:
  std::filesystem::path path_;
  int file_;
  std::size_t bytes_ = 0;
};

/// A file being written; every failure is an IoError that names it and says the system's reason.
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
