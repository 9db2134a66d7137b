#include "src/core/direct_file.h"

#include <fcntl.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <cstring>
#include <string>

#include "hybrid_trainer/core/error.h"
#include "hybrid_trainer/core/progress.h"

namespace hybrid_trainer {
namespace {

/// More at a time would make an interrupt wait; less would make the disk wait.
constexpr std::size_t kMostAtATime = std::size_t{4} << 20;

/// Calls transfer(offset, bytes), which returns as pread does, until all is done; false where it is
/// refused.
template <class Transfer>
bool in_pieces(std::size_t bytes, const char* verb, const Transfer& transfer) {
  for (std::size_t done = 0; done < bytes;) {
    const ssize_t moved = transfer(done, std::min(kMostAtATime, bytes - done));
    if (moved < 0 && errno == EINTR) continue;
    if (moved < 0 && errno == EINVAL) return false;
    if (moved <= 0) {
      throw IoError(concat("cannot ", verb, " the scratch file: ",
                           moved == 0 ? "it ends too early" : std::strerror(errno),
                           "; see memory.folder"));
    }
    done += static_cast<std::size_t>(moved);
  }
  return true;
}

}  // namespace

DirectFile::DirectFile(int file)
    : file_(
          open(("/proc/self/fd/" + std::to_string(file)).c_str(), O_RDWR | O_DIRECT | O_CLOEXEC)) {}

DirectFile::~DirectFile() {
  if (file_ >= 0) close(file_);
}

bool DirectFile::read(void* to, off_t at, std::size_t bytes) const {
  return in_pieces(bytes, "read", [&](std::size_t offset, std::size_t size) {
    count_progress();
    return pread(file_, static_cast<char*>(to) + offset, size, at + static_cast<off_t>(offset));
  });
}

bool DirectFile::write(const void* from, off_t at, std::size_t bytes) const {
  return in_pieces(bytes, "write", [&](std::size_t offset, std::size_t size) {
    count_progress();
    return pwrite(file_, static_cast<const char*>(from) + offset, size,
                  at + static_cast<off_t>(offset));
  });
}

}  // namespace hybrid_trainer
