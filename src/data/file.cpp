#include "file.h"

#include <cerrno>
#include <cstring>
#include <fstream>
#include <utility>

#include "hybrid_trainer/core/error.h"

namespace hybrid_trainer {

std::string read_file(const std::filesystem::path& path, std::size_t limit_bytes) {
  std::error_code error;
  const auto bytes = std::filesystem::file_size(path, error);
  if (error) throw MissingInput(concat("cannot read ", path.string(), ": ", error.message()));
  if (bytes > limit_bytes) {
    throw DataError(
        concat(path.string(), " has ", bytes, " bytes; at most ", limit_bytes, " are expected"));
  }
  std::string text(bytes, '\0');
  std::ifstream file(path, std::ios::binary);
  if (!file) throw MissingInput(concat("cannot read ", path.string(), ": ", std::strerror(errno)));
  file.read(text.data(), static_cast<std::streamsize>(bytes));
  if (static_cast<std::size_t>(file.gcount()) != bytes) {
    throw IoError(concat("reading ", path.string(), " stopped after ", file.gcount(), " of ", bytes,
                         " bytes"));
  }
  return text;
}

OutputFile::OutputFile(std::filesystem::path path)
    : path_(std::move(path)), file_(std::fopen(path_.c_str(), "wb")) {
  if (file_ == nullptr) fail("create");
}

OutputFile::~OutputFile() {
  if (file_ != nullptr) std::fclose(file_);
}

void OutputFile::write(const void* data, std::size_t bytes) {
  if (std::fwrite(data, 1, bytes, file_) != bytes) fail("write");
}

void OutputFile::write_at_start(const void* data, std::size_t bytes) {
  if (std::fseek(file_, 0, SEEK_SET) != 0) fail("seek in");
  write(data, bytes);
}

void OutputFile::close() {
  if (std::fclose(std::exchange(file_, nullptr)) != 0) fail("write");
}

void OutputFile::fail(const char* what) const {
  throw IoError(concat("cannot ", what, " ", path_.string(), ": ", std::strerror(errno)));
}

}  // namespace hybrid_trainer
