#include "hybrid_trainer/files/input_file.h"

#include <fcntl.h>
#include <sys/resource.h>
#include <sys/stat.h>
#include <unistd.h>
#include <algorithm>
#include <cerrno>
#include <cstring>

#include "hybrid_trainer/core/error.h"
#include "src/core/process.h"

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

namespace {

/// Raises the limit on open files: the default of 1024 is too low for the shards of a large corpus.
void allow_more_open_files() {
  rlimit limit{};
  if (::getrlimit(RLIMIT_NOFILE, &limit) != 0) return;
  limit.rlim_cur = limit.rlim_max;
  ::setrlimit(RLIMIT_NOFILE, &limit);
}

/// Opens a file, without waiting for the writer of a pipe. Returns -1 and sets errno on failure.
int open_for_reading(const std::filesystem::path& path) {
  constexpr int kFlags = O_RDONLY | O_CLOEXEC | O_NONBLOCK;
  const int file = ::open(path.c_str(), kFlags);
  if (file >= 0 || errno != EMFILE) return file;
  allow_more_open_files();
  return ::open(path.c_str(), kFlags);
}

std::string content_of(const InputFile& file, std::size_t max_bytes) {
  if (file.bytes() > max_bytes)
    throw DataError(
        concat(file.path().native(), ": has ", file.bytes(), " bytes; want at most ", max_bytes));
  std::string text(file.bytes(), '\0');
  file.read_at(text.data(), text.size(), 0);
  return text;
}

/// Returns a new file without a name. Returns -1 and sets errno on failure.
int open_unnamed() {
  const std::string folder = std::filesystem::temp_directory_path();
  const int file = ::open(folder.c_str(), O_TMPFILE | O_RDWR | O_CLOEXEC, 0600);
  if (file >= 0 || (errno != EOPNOTSUPP && errno != EISDIR)) return file;
  std::string path = folder + "/.hybrid-XXXXXX";
  const int named = ::mkostemp(path.data(), O_CLOEXEC);
  if (named >= 0) ::unlink(path.c_str());
  return named;
}

}  // namespace

InputFile::InputFile(std::filesystem::path path)
    : path_(std::move(path)), file_(open_for_reading(path_)) {
  if (file_.number() < 0)
    throw MissingInput(errno == ENOENT ? path_.native() + ": does not exist"
                                       : system_problem(path_, "cannot open it for reading"));
  struct stat status {};
  if (::fstat(file_.number(), &status) != 0)
    throw IoError(system_problem(path_, "cannot read its size"));
  if (!S_ISREG(status.st_mode)) throw DataError(path_.native() + ": is not a regular file");
  bytes_ = static_cast<std::size_t>(status.st_size);
}

InputFile::InputFile(const FilePart& part) {
  if (part.unnamed) {
    file_ = FileDescriptor(::fcntl(part.unnamed->number(), F_DUPFD_CLOEXEC, 0));
    if (file_.number() < 0) throw IoError(system_problem(part.name, "cannot open it again"));
    bytes_ = part.bytes.value_or(0);
  } else {
    *this = InputFile(part.path);
    bytes_ = std::min(part.bytes.value_or(bytes_), bytes_ - std::min(bytes_, part.offset));
  }
  path_ = part.name;
  begin_ = part.offset;
}

void InputFile::read_at(void* to, std::size_t bytes, std::size_t offset) const {
  char* next = static_cast<char*>(to);
  offset += begin_;
  const std::size_t end = offset + bytes;
  while (offset < end) {
    count_progress();
    const std::size_t most = std::min(end - offset, kMaxBytesAtOnce);
    const ssize_t got = ::pread(file_.number(), next, most, static_cast<off_t>(offset));
    if (got < 0 && errno == EINTR) continue;
    if (got < 0) throw IoError(system_problem(path_, "reading failed"));
    if (got == 0)
      throw IoError(concat(path_.native(), ": ends at byte ", offset, ", but had ", bytes_,
                           " bytes when it was opened: another program truncated it"));
    next += got;
    offset += static_cast<std::size_t>(got);
  }
}

std::string read_file(const std::filesystem::path& path, std::size_t max_bytes) {
  return content_of(InputFile(path), max_bytes);
}

std::string read_file(const FilePart& part, std::size_t max_bytes) {
  return content_of(InputFile(part), max_bytes);
}

ScratchFile::ScratchFile() : file_(std::make_shared<FileDescriptor>(open_unnamed())) {
  if (file_->number() < 0)
    throw IoError(
        system_problem(std::filesystem::temp_directory_path(),
                       "cannot create a temporary file for a table (TMPDIR sets the folder)"));
}

FilePart ScratchFile::add(std::string_view bytes, const std::string& name) {
  FilePart part;
  part.name = name;
  part.unnamed = file_;
  part.offset = bytes_;
  part.bytes = bytes.size();
  while (!bytes.empty()) {
    const ssize_t written =
        ::pwrite(file_->number(), bytes.data(), std::min(bytes.size(), kMaxBytesAtOnce),
                 static_cast<off_t>(bytes_));
    if (written < 0 && errno == EINTR) continue;
    if (written < 0)
      throw IoError(
          system_problem(std::filesystem::temp_directory_path(),
                         "cannot write a table to a temporary file (TMPDIR sets the folder)"));
    bytes.remove_prefix(static_cast<std::size_t>(written));
    bytes_ += static_cast<std::size_t>(written);
  }
  return part;
}

}  // namespace hybrid_trainer
