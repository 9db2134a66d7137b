#include "mapped_file.h"

#include <fcntl.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <unistd.h>

#include <cerrno>
#include <cstring>

#include "hybrid_trainer/core/error.h"

namespace hybrid_trainer {

MappedFile::MappedFile(const std::filesystem::path& path) {
  const int file = ::open(path.c_str(), O_RDONLY | O_CLOEXEC);
  if (file < 0) {
    throw MissingInput(concat("cannot open ", path.string(), ": ", std::strerror(errno)));
  }
  struct stat status {};
  if (::fstat(file, &status) == 0 && S_ISREG(status.st_mode)) {
    bytes_ = static_cast<std::size_t>(status.st_size);
    if (bytes_ > 0) data_ = ::mmap(nullptr, bytes_, PROT_READ, MAP_PRIVATE, file, 0);
  } else {
    data_ = MAP_FAILED;
  }
  const int error = errno;
  ::close(file);
  if (data_ == MAP_FAILED) {
    throw IoError(concat("cannot map ", path.string(), " into memory: ", std::strerror(error)));
  }
}

MappedFile::~MappedFile() {
  if (data_ != nullptr) ::munmap(data_, bytes_);
}

}  // namespace hybrid_trainer
