#include "tests/support/faulty_files.h"

#include <dirent.h>
#include <dlfcn.h>
#include <fcntl.h>
#include <gtest/gtest.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <sys/wait.h>
#include <unistd.h>

#include <cerrno>
#include <cstdarg>
#include <filesystem>
#include <mutex>
#include <string>
#include <string_view>

#include "tests/support/unsynced_files.h"

namespace hybrid_trainer {
namespace {

FileFault::Plan fault_plan;
bool is_armed = false;
int counted = 0;
UnsyncedFiles unsynced;
std::function<void(const FileChange&)> observer;
std::mutex observer_mutex;

[[noreturn]] void stop() {
  is_armed = false;
  if (fault_plan.action == FileAction::kPowerCut) unsynced.lose(UnsyncedFiles::Names::kKept);
  if (fault_plan.action == FileAction::kPowerCutWithNames)
    unsynced.lose(UnsyncedFiles::Names::kLost);
  ::_exit(FileFault::kKilled);
}

std::string path_of(int file) {
  char path[4096];
  const std::string link = "/proc/self/fd/" + std::to_string(file);
  const ssize_t size = ::readlink(link.c_str(), path, sizeof path);
  return std::string(path, size > 0 ? static_cast<std::size_t>(size) : 0);
}

std::string absolute(const char* path) {
  return std::filesystem::absolute(path).lexically_normal().string();
}

std::string absolute(int folder, const char* path) {
  return folder == AT_FDCWD || path[0] == '/' ? absolute(path) : path_of(folder) + "/" + path;
}

/// Reports a change if there is an observer and the call succeeded. Keeps errno.
template <class Change>
void report(bool succeeded, const Change& change) {
  if (!observer || !succeeded) return;
  const int error = errno;
  const std::lock_guard lock(observer_mutex);
  observer(change());
  errno = error;
}

/// Returns the position of the next write to an open file.
std::size_t write_position(int file) {
  const bool appends = (::fcntl(file, F_GETFL) & O_APPEND) != 0;
  return static_cast<std::size_t>(::lseek(file, 0, appends ? SEEK_END : SEEK_CUR));
}

/// Returns whether the plan includes a power cut.
bool is_recording() {
  return is_armed && (fault_plan.action == FileAction::kPowerCut ||
                      fault_plan.action == FileAction::kPowerCutWithNames);
}

bool is_within(std::string_view path) { return path.find(fault_plan.within) != path.npos; }
bool is_within(int file) { return fault_plan.within.empty() || is_within(path_of(file)); }

/// Returns whether this is the planned call; if that is to run `meanwhile`, runs it, returns false.
template <class File>
bool is_planned(FileCall call, File file) {
  if (!is_armed || (fault_plan.only && *fault_plan.only != call) || !is_within(file)) return false;
  if (counted++ != fault_plan.at) return false;
  if (fault_plan.action != FileAction::kMeanwhile) return true;
  is_armed = false;
  fault_plan.meanwhile();
  is_armed = true;
  return false;
}

/// Returns whether this call fails. If so, sets errno.
template <class File>
bool fails(FileCall call, File file) {
  if (!is_planned(call, file)) return false;
  if (fault_plan.action != FileAction::kFail) stop();
  errno = fault_plan.error;
  return true;
}

int rename_noted(const char* from, const char* to, unsigned flags) {
  const std::string replaced = is_recording() && flags == 0 ? unsynced.preserve(to) : "";
  const long result = ::syscall(SYS_renameat2, AT_FDCWD, from, AT_FDCWD, to, flags);
  if (is_recording() && result == 0) unsynced.renamed(from, to, replaced, flags == RENAME_EXCHANGE);
  report(result == 0, [&] {
    return FileChange{
        flags == RENAME_EXCHANGE ? FileChange::Kind::kExchange : FileChange::Kind::kRename,
        absolute(from), absolute(to)};
  });
  return static_cast<int>(result);
}

}  // namespace

FileFault::FileFault(const Plan& wanted) {
  fault_plan = wanted;
  counted = 0;
  unsynced = {};
  is_armed = true;
}

FileFault::~FileFault() { is_armed = false; }

int FileFault::calls() const { return counted; }

FileObserver::FileObserver(std::function<void(const FileChange&)> report) {
  observer = std::move(report);
}

FileObserver::~FileObserver() { observer = nullptr; }

bool is_stopped(int at, FileAction stop, const std::function<void()>& action) {
  const pid_t child = ::fork();
  if (child == 0) {
    try {
      const FileFault fault({.at = at, .error = 0, .only = {}, .action = stop});
      action();
    } catch (...) {
      ::_exit(1);
    }
    ::_exit(0);
  }
  int status = 0;
  ::waitpid(child, &status, 0);
  EXPECT_TRUE(WIFEXITED(status));
  const int code = WEXITSTATUS(status);
  EXPECT_TRUE(code == 0 || code == FileFault::kKilled) << code;
  return code == FileFault::kKilled;
}

}  // namespace hybrid_trainer

using hybrid_trainer::absolute;
using hybrid_trainer::fails;
using hybrid_trainer::fault_plan;
using hybrid_trainer::FileAction;
using hybrid_trainer::FileCall;
using hybrid_trainer::FileChange;
using hybrid_trainer::is_armed;
using hybrid_trainer::is_planned;
using hybrid_trainer::is_recording;
using hybrid_trainer::observer;
using hybrid_trainer::path_of;
using hybrid_trainer::rename_noted;
using hybrid_trainer::report;
using hybrid_trainer::stop;
using hybrid_trainer::unsynced;
using hybrid_trainer::write_position;

extern "C" {

int open(const char* path, int flags, ...) {
  if (fails(FileCall::kOpen, path)) return -1;
  std::va_list arguments;
  va_start(arguments, flags);
  const mode_t mode = (flags & O_CREAT) != 0 ? va_arg(arguments, mode_t) : 0;
  va_end(arguments);
  const bool creates = (flags & O_CREAT) != 0 && ::access(path, F_OK) != 0;
  if (is_recording() && creates) unsynced.created(path);
  const auto file = static_cast<int>(::syscall(SYS_openat, AT_FDCWD, path, flags, mode));
  report(file >= 0 && (creates || (flags & O_TRUNC) != 0), [&] {
    return FileChange{creates ? FileChange::Kind::kCreate : FileChange::Kind::kTruncate,
                      absolute(path)};
  });
  return file;
}

ssize_t pwrite(int file, const void* data, size_t bytes, off_t offset) {
  const ssize_t written = ::syscall(SYS_pwrite64, file, data, bytes, offset);
  report(written > 0, [&] {
    return FileChange{FileChange::Kind::kWrite, path_of(file), "", static_cast<size_t>(offset),
                      std::string(static_cast<const char*>(data), static_cast<size_t>(written))};
  });
  return written;
}

int ftruncate(int file, off_t size) noexcept {
  const auto result = static_cast<int>(::syscall(SYS_ftruncate, file, size));
  report(result == 0, [&] {
    return FileChange{FileChange::Kind::kTruncate, path_of(file), "", static_cast<size_t>(size)};
  });
  return result;
}

int link(const char* from, const char* to) noexcept {
  const auto result = static_cast<int>(::syscall(SYS_linkat, AT_FDCWD, from, AT_FDCWD, to, 0));
  report(result == 0, [&] {
    return FileChange{FileChange::Kind::kLink, absolute(from), absolute(to)};
  });
  return result;
}

ssize_t write(int file, const void* data, size_t bytes) {
  if (is_recording()) unsynced.wrote(path_of(file));
  if (is_planned(FileCall::kWrite, file)) {
    if (fault_plan.action != FileAction::kFail) {
      ::syscall(SYS_write, file, data, bytes / 2);
      stop();
    }
    errno = fault_plan.error;
    return -1;
  }
  const std::size_t position = observer ? write_position(file) : 0;
  const ssize_t written = ::syscall(SYS_write, file, data, bytes);
  report(written > 0, [&] {
    return FileChange{FileChange::Kind::kWrite, path_of(file), "", position,
                      std::string(static_cast<const char*>(data), static_cast<size_t>(written))};
  });
  return written;
}

int fsync(int file) {
  if (fails(FileCall::kSync, file)) return -1;
  if (is_recording()) unsynced.synced(path_of(file));
  const auto result = static_cast<int>(::syscall(SYS_fsync, file));
  report(result == 0, [&] { return FileChange{FileChange::Kind::kSync, path_of(file)}; });
  return result;
}

/// A file whose close() fails is closed nevertheless.
int close(int file) {
  const bool failing = fails(FileCall::kClose, file);
  const auto result = static_cast<int>(::syscall(SYS_close, file));
  if (!failing) return result;
  errno = fault_plan.error;
  return -1;
}

int rename(const char* from, const char* to) noexcept {
  return fails(FileCall::kRename, from) ? -1 : rename_noted(from, to, 0);
}

/// Ignores the folder descriptors, because the tests pass only paths that need none.
int renameat2(int, const char* from, int, const char* to, unsigned flags) noexcept {
  if (is_armed && !fault_plan.can_exchange) {
    errno = EINVAL;
    return -1;
  }
  return fails(FileCall::kRename, from) ? -1 : rename_noted(from, to, flags);
}

int mkdir(const char* path, mode_t mode) noexcept {
  if (fails(FileCall::kMakeFolder, path)) return -1;
  if (is_recording()) unsynced.created(path);
  const auto result = static_cast<int>(::syscall(SYS_mkdirat, AT_FDCWD, path, mode));
  report(result == 0, [&] { return FileChange{FileChange::Kind::kMakeFolder, absolute(path)}; });
  return result;
}

int unlinkat(int folder, const char* path, int flags) noexcept {
  if (fails(FileCall::kRemove, path)) return -1;
  const auto result = static_cast<int>(::syscall(SYS_unlinkat, folder, path, flags));
  report(result == 0, [&] {
    return FileChange{FileChange::Kind::kRemove, absolute(folder, path)};
  });
  return result;
}

int unlink(const char* path) noexcept {
  if (fails(FileCall::kRemove, path)) return -1;
  const auto result = static_cast<int>(::syscall(SYS_unlinkat, AT_FDCWD, path, 0));
  report(result == 0, [&] { return FileChange{FileChange::Kind::kRemove, absolute(path)}; });
  return result;
}

/// std::filesystem::remove calls it.
int remove(const char* path) noexcept {
  if (fails(FileCall::kRemove, path)) return -1;
  auto result = static_cast<int>(::syscall(SYS_unlinkat, AT_FDCWD, path, 0));
  if (result != 0 && (errno == EISDIR || errno == EPERM))
    result = static_cast<int>(::syscall(SYS_unlinkat, AT_FDCWD, path, AT_REMOVEDIR));
  report(result == 0, [&] { return FileChange{FileChange::Kind::kRemove, absolute(path)}; });
  return result;
}

dirent* readdir(DIR* folder) {
  static const auto real = reinterpret_cast<dirent* (*)(DIR*)>(::dlsym(RTLD_NEXT, "readdir"));
  if (fails(FileCall::kList, "")) return nullptr;
  return real(folder);
}

}  // extern "C"
