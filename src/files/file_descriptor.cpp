#include "hybrid_trainer/files/file_descriptor.h"

#include <unistd.h>

#include <cerrno>
#include <cstring>

#include "hybrid_trainer/core/error.h"

namespace hybrid_trainer {

FileDescriptor::~FileDescriptor() {
  if (number_ >= 0) ::close(number_);
}

void FileDescriptor::close(const std::filesystem::path& path) {
  if (::close(std::exchange(number_, -1)) != 0)
    throw IoError(system_problem(path, "closing failed"));
}

std::string system_problem(const std::filesystem::path& path, const char* what_failed) {
  return concat(path.native(), ": ", what_failed, ": ", std::strerror(errno));
}

void throw_cannot_create(int code, const std::string& problem) {
  for (const int of_disk : {ENOSPC, EDQUOT, EIO, EMFILE, ENFILE})
    if (code == of_disk) throw IoError(problem);
  throw CannotCreate(problem);
}

}  // namespace hybrid_trainer
