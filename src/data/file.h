#pragma once

#include <cstdio>
#include <filesystem>
#include <span>
#include <string>
#include <string_view>

namespace hybrid_trainer {

/// The whole file. Throws MissingInput where it cannot be opened, DataError where it is over
/// `limit_bytes`.
std::string read_file(const std::filesystem::path& path, std::size_t limit_bytes);

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
