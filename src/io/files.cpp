#include "hybrid_trainer/io/files.h"

#include "hybrid_trainer/core/error.h"
#include "src/io/file_descriptor.h"

namespace hybrid_trainer {

void write_file_atomically(const std::string& path, std::string_view text) {
  write_atomically(path, [&](FileWriter& writer) { writer.append(text.data(), text.size()); });
}

std::string read_file(const std::string& path, std::size_t max_bytes) {
  const auto [file, size] = open_regular_file(path);
  if (size > max_bytes) {
    throw DataError(concat(path, ": has ", size, " bytes; at most ", max_bytes, " are read"));
  }
  std::string text(size, '\0');
  read_at(file, path, text.data(), size, 0);
  return text;
}

}  // namespace hybrid_trainer
