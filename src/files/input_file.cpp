#include "hybrid_trainer/files/input_file.h"

#include <fcntl.h>
#include <sys/resource.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>

#include "hybrid_trainer/core/error.h"
#include "hybrid_trainer/core/progress.h"

namespace hybrid_trainer {
namespace {

/// Raises the limit on open files: the default of 1024 is less than a large corpus has shards.
void allow_more_open_files() {
  rlimit limit{};
  if (::getrlimit(RLIMIT_NOFILE, &limit) != 0) return;
  limit.rlim_cur = limit.rlim_max;
  ::setrlimit(RLIMIT_NOFILE, &limit);
}

/// -1 and errno on failure. O_NONBLOCK: opening a pipe must not wait for its writer.
int open_to_read(const std::filesystem::path& path) {
  constexpr int kFlags = O_RDONLY | O_CLOEXEC | O_NONBLOCK;
  const int file = ::open(path.c_str(), kFlags);
  if (file >= 0 || errno != EMFILE) return file;
  allow_more_open_files();
  return ::open(path.c_str(), kFlags);
}

}  // namespace

InputFile::InputFile(std::filesystem::path path)
    : path_(std::move(path)), file_(open_to_read(path_)) {
  if (file_.number() < 0) throw MissingInput(system_problem(path_, "cannot open it for reading"));
  struct stat status {};
  if (::fstat(file_.number(), &status) != 0)
    throw IoError(system_problem(path_, "cannot read its size"));
  if (!S_ISREG(status.st_mode)) throw DataError(path_.native() + ": is no regular file");
  bytes_ = static_cast<std::size_t>(status.st_size);
}

void InputFile::read_at(void* to, std::size_t bytes, std::size_t offset) const {
  char* next = static_cast<char*>(to);
  const std::size_t end = offset + bytes;
  while (offset < end) {
    count_progress();
    const std::size_t most = std::min(end - offset, kMostBytesAtOnce);
    const ssize_t got = ::pread(file_.number(), next, most, static_cast<off_t>(offset));
    if (got < 0 && errno == EINTR) continue;
    if (got < 0) throw IoError(system_problem(path_, "reading failed"));
    if (got == 0) {
      throw IoError(concat(path_.native(), ": ends at byte ", offset, " and had ", bytes_,
                           " when it was opened: another program has cut it short"));
    }
    next += got;
    offset += static_cast<std::size_t>(got);
  }
}

std::string read_file(const std::filesystem::path& path, std::size_t max_bytes) {
  const InputFile file(path);
  if (file.bytes() > max_bytes) {
    throw DataError(
        concat(path.native(), ": has ", file.bytes(), " bytes; at most ", max_bytes, " are read"));
  }
  std::string text(file.bytes(), '\0');
  file.read_at(text.data(), text.size(), 0);
  return text;
}

}  // namespace hybrid_trainer
