#include "file.h"

#include <fcntl.h>
#include <sys/resource.h>
#include <sys/stat.h>
#include <unistd.h>

#include <cerrno>
#include <cstring>
#include <utility>

#include "hybrid_trainer/core/error.h"

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

std::string read_file(const std::filesystem::path& path, std::size_t limit_bytes) {
  const InputFile file(path);
  if (file.bytes() > limit_bytes) {
    throw DataError(concat(path.string(), " has ", file.bytes(), " bytes; at most ", limit_bytes,
                           " are expected"));
  }
  std::string text(file.bytes(), '\0');
  file.read_at(text.data(), text.size(), 0);
  return text;
}

InputFile::InputFile(std::filesystem::path path)
    : path_(std::move(path)), file_(open_to_read(path_)) {
  if (file_ < 0) {
    throw MissingInput(concat("cannot open ", path_.string(), ": ", std::strerror(errno)));
  }
  struct stat status {};
  if (::fstat(file_, &status) != 0 || !S_ISREG(status.st_mode)) {
    ::close(file_);
    throw DataError(concat(path_.string(), " is no regular file"));
  }
  bytes_ = static_cast<std::size_t>(status.st_size);
}

InputFile::~InputFile() { ::close(file_); }

void InputFile::read_at(void* to, std::size_t bytes, std::size_t offset) const {
  char* next = static_cast<char*>(to);
  const std::size_t end = offset + bytes;
  while (offset < end) {
    const ssize_t got = ::pread(file_, next, end - offset, static_cast<off_t>(offset));
    if (got < 0 && errno == EINTR) continue;
    if (got < 0) {
      throw IoError(concat("reading ", path_.string(), " failed at byte ", offset, ": ",
                           std::strerror(errno)));
    }
    if (got == 0) {
      throw IoError(concat(path_.string(), " ends at byte ", offset, " and had ", bytes_,
                           " when it was opened: another program has cut it short"));
    }
    next += got;
    offset += static_cast<std::size_t>(got);
  }
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
