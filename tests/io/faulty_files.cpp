#include "tests/io/faulty_files.h"

#include <dirent.h>
#include <dlfcn.h>
#include <fcntl.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <unistd.h>

#include <cerrno>
#include <cstdarg>

namespace hybrid_trainer {
namespace {

FileFault::Plan plan;
bool is_armed = false;
int counted = 0;

/// Whether this call fails; then errno is set.
bool fails(FileCall call) {
  if (!is_armed || (plan.only && *plan.only != call)) return false;
  if (counted++ != plan.at) return false;
  errno = plan.error;
  return true;
}

}  // namespace

FileFault::FileFault(const Plan& wanted) {
  plan = wanted;
  counted = 0;
  is_armed = true;
}

FileFault::~FileFault() { is_armed = false; }

int FileFault::calls() const { return counted; }

}  // namespace hybrid_trainer

using hybrid_trainer::fails;
using hybrid_trainer::FileCall;

extern "C" {

int open(const char* path, int flags, ...) {
  if (fails(FileCall::kOpen)) return -1;
  std::va_list arguments;
  va_start(arguments, flags);
  const mode_t mode = (flags & O_CREAT) != 0 ? va_arg(arguments, mode_t) : 0;
  va_end(arguments);
  return static_cast<int>(::syscall(SYS_openat, AT_FDCWD, path, flags, mode));
}

ssize_t write(int file, const void* data, size_t bytes) {
  if (fails(FileCall::kWrite)) return -1;
  return ::syscall(SYS_write, file, data, bytes);
}

int fsync(int file) {
  if (fails(FileCall::kSync)) return -1;
  return static_cast<int>(::syscall(SYS_fsync, file));
}

/// A file whose closing fails is closed all the same.
int close(int file) {
  const bool failing = fails(FileCall::kClose);
  const int error = errno;
  const auto result = static_cast<int>(::syscall(SYS_close, file));
  if (failing) errno = error;
  return failing ? -1 : result;
}

int rename(const char* from, const char* to) noexcept {
  if (fails(FileCall::kRename)) return -1;
  return static_cast<int>(::syscall(SYS_renameat2, AT_FDCWD, from, AT_FDCWD, to, 0));
}

int renameat2(int from_folder, const char* from, int to_folder, const char* to,
              unsigned flags) noexcept {
  if (fails(FileCall::kRename)) return -1;
  return static_cast<int>(::syscall(SYS_renameat2, from_folder, from, to_folder, to, flags));
}

int mkdir(const char* path, mode_t mode) noexcept {
  if (fails(FileCall::kMakeFolder)) return -1;
  return static_cast<int>(::syscall(SYS_mkdirat, AT_FDCWD, path, mode));
}

int unlinkat(int folder, const char* path, int flags) noexcept {
  if (fails(FileCall::kRemove)) return -1;
  return static_cast<int>(::syscall(SYS_unlinkat, folder, path, flags));
}

int unlink(const char* path) noexcept {
  if (fails(FileCall::kRemove)) return -1;
  return static_cast<int>(::syscall(SYS_unlinkat, AT_FDCWD, path, 0));
}

dirent* readdir(DIR* folder) {
  static const auto real = reinterpret_cast<dirent* (*)(DIR*)>(::dlsym(RTLD_NEXT, "readdir"));
  if (fails(FileCall::kList)) return nullptr;
  return real(folder);
}

}  // extern "C"
