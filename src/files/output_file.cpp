#include "hybrid_trainer/files/output_file.h"

#include <fcntl.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <cstdio>

#include "hybrid_trainer/core/error.h"
#include "hybrid_trainer/core/process_end.h"
#include "hybrid_trainer/core/progress.h"
#include "hybrid_trainer/files/folder.h"
#include "hybrid_trainer/files/temporary_name.h"

namespace hybrid_trainer {
namespace fs = std::filesystem;

OutputFile::OutputFile(const fs::path& path, Existing existing, fs::path called, unsigned mode)
    : path_(std::move(called)),
      file_(::open(path.c_str(),
                   O_WRONLY | O_CREAT | O_CLOEXEC |
                       (existing == Existing::kRefuse ? O_EXCL | O_NOFOLLOW : O_TRUNC),
                   mode)) {
  if (file_.number() < 0) throw_cannot_create(errno, system_problem(path_, "cannot create it"));
}

void OutputFile::write(const void* data, std::size_t bytes) {
  const char* next = static_cast<const char*>(data);
  while (bytes > 0) {
    count_progress();
    const ssize_t wrote = ::write(file_.number(), next, std::min(bytes, kMostBytesAtOnce));
    if (wrote < 0 && errno == EINTR) continue;
    if (wrote < 0) throw IoError(system_problem(path_, "writing failed"));
    next += wrote;
    bytes -= static_cast<std::size_t>(wrote);
  }
}

void OutputFile::write_at_start(const void* data, std::size_t bytes) {
  if (::lseek(file_.number(), 0, SEEK_SET) != 0)
    throw IoError(system_problem(path_, "cannot go back to its start"));
  write(data, bytes);
}

/// What fsync would wait for, piece by piece, so that a slow disk is progress. What it cannot do is
/// left to fsync.
void OutputFile::write_out() const {
  const ::off_t end = ::lseek(file_.number(), 0, SEEK_END);
  const auto most = static_cast<::off_t>(kMostBytesAtOnce);
  ::sync_file_range(file_.number(), 0, 0, SYNC_FILE_RANGE_WRITE);
  for (::off_t at = 0; at < end; at += most) {
    ::sync_file_range(
        file_.number(), at, most,
        SYNC_FILE_RANGE_WAIT_BEFORE | SYNC_FILE_RANGE_WRITE | SYNC_FILE_RANGE_WAIT_AFTER);
    count_progress();
  }
}

void OutputFile::sync_and_close() {
  write_out();
  if (::fsync(file_.number()) != 0) throw IoError(system_problem(path_, "fsync failed"));
  close();
}

void write_file(const fs::path& path, std::string_view text) {
  OutputFile file(path);
  file.write(text);
  file.close();
}

void replace_file(const fs::path& path, std::string_view text) {
  replace_file(path, [&](OutputFile& file) { file.write(text); });
}

namespace {

/// False if there is something at `to` (EEXIST), or errno says why.
bool rename_to_nothing(const fs::path& from, const fs::path& to) {
  if (::renameat2(AT_FDCWD, from.c_str(), AT_FDCWD, to.c_str(), RENAME_NOREPLACE) == 0) return true;
  if (errno != EINVAL && errno != ENOSYS) return false;
  // The file system has no such rename; FAT has no links either.
  if (::link(from.c_str(), to.c_str()) == 0) return ::unlink(from.c_str()) == 0;
  if (errno == EEXIST) return false;
  struct stat found {};
  if (::lstat(to.c_str(), &found) != 0) return std::rename(from.c_str(), to.c_str()) == 0;
  errno = EEXIST;
  return false;
}

enum class Target { kReplaced, kNew };

void write_whole(const fs::path& path, const std::function<void(OutputFile&)>& write,
                 Target target) {
  const fs::path folder = fs::absolute(path).parent_path();
  const fs::path temporary = folder / concat(".tmp-", temporary_mark());
  const TemporaryPath removed_at_end(temporary);
  OutputFile file(temporary, OutputFile::Existing::kRefuse, path);
  try {
    write(file);
    file.sync_and_close();
    const bool is_renamed = target == Target::kNew
                                ? rename_to_nothing(temporary, path)
                                : std::rename(temporary.c_str(), path.c_str()) == 0;
    if (!is_renamed && target == Target::kNew && errno == EEXIST)
      throw CannotCreate(concat(path.native(),
                                ": exists already; it stays as it is; give another "
                                "name, or remove it"));
    if (!is_renamed) throw_cannot_create(errno, system_problem(path, "cannot replace it"));
  } catch (...) {
    ::unlink(temporary.c_str());
    throw;
  }
  sync_folder(folder);
}

}  // namespace

void replace_file(const fs::path& path, const std::function<void(OutputFile&)>& write) {
  write_whole(path, write, Target::kReplaced);
}

void create_file(const fs::path& path, const std::function<void(OutputFile&)>& write) {
  write_whole(path, write, Target::kNew);
}

}  // namespace hybrid_trainer
