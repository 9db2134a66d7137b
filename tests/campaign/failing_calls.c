/* A library to preload: fails one call. HT_FAIL_AT is its index among the calls of HT_FAIL_KIND (file, memory or
   thread), HT_FAIL_ERROR the errno, or -1 for a short write; without HT_FAIL_AT, writes the number of calls to the file
   HT_FAIL_COUNT at exit. Counts calls from the beginning of main: libcudart, which is linked statically, registers its
   kernels before, and does not survive a failed allocation there. */
#define _GNU_SOURCE
#include <dlfcn.h>
#include <errno.h>
#include <fcntl.h>
#include <pthread.h>
#include <stdarg.h>
#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <unistd.h>

static atomic_long calls;
static long fails_at = -1;
static int in_main, error, counts_files, counts_memory, counts_threads;

__attribute__((constructor)) static void start(void) {
  const char *at = getenv("HT_FAIL_AT"), *kind = getenv("HT_FAIL_KIND"), *code = getenv("HT_FAIL_ERROR");
  if (at) fails_at = atol(at);
  if (code) error = atoi(code);
  if (!kind) return;
  counts_files = strcmp(kind, "file") == 0;
  counts_memory = strcmp(kind, "memory") == 0;
  counts_threads = strcmp(kind, "thread") == 0;
}

static int (*real_main)(int, char **, char **);
static int counted_main(int count, char **arguments, char **environment) {
  in_main = 1;
  return real_main(count, arguments, environment);
}

int __libc_start_main(int (*program)(int, char **, char **), int count, char **arguments, void (*init)(void),
                      void (*fini)(void), void (*loader_fini)(void), void *stack) {
  typedef int Start(int (*)(int, char **, char **), int, char **, void (*)(void), void (*)(void), void (*)(void), void *);
  Start *start = (Start *)dlsym(RTLD_NEXT, "__libc_start_main");
  real_main = program;
  return start(counted_main, count, arguments, init, fini, loader_fini, stack);
}

__attribute__((destructor)) static void stop(void) {
  const char *path = getenv("HT_FAIL_COUNT");
  const long all = calls;
  char text[32];
  if (!path) return;
  const int file = (int)syscall(SYS_openat, AT_FDCWD, path, O_WRONLY | O_CREAT | O_TRUNC, 0644);
  const int length = snprintf(text, sizeof text, "%ld\n", all);
  syscall(SYS_write, file, text, length);
  syscall(SYS_close, file);
}

static int fails(int counted) {
  if (!counted || !in_main || calls++ != fails_at) return 0;
  if (error > 0) errno = error;
  return 1;
}

int open(const char *path, int flags, ...) {
  va_list rest;
  va_start(rest, flags);
  const mode_t mode = (flags & O_CREAT) ? va_arg(rest, mode_t) : 0;
  va_end(rest);
  if (strncmp(path, "/proc", 5) != 0 && strncmp(path, "/sys", 4) != 0 && fails(counts_files)) return -1;
  return (int)syscall(SYS_openat, AT_FDCWD, path, flags, mode);
}

ssize_t write(int file, const void *data, size_t bytes) {
  struct stat status;
  if (counts_files && fstat(file, &status) == 0 && S_ISREG(status.st_mode) && fails(1)) {
    if (error >= 0) return -1;
    bytes = bytes / 2; /* a short write, and the next one fails */
    error = ENOSPC;
    fails_at = calls;
  }
  return syscall(SYS_write, file, data, bytes);
}

int fsync(int file) { return fails(counts_files) ? -1 : (int)syscall(SYS_fsync, file); }

int rename(const char *from, const char *to) {
  return fails(counts_files) ? -1 : (int)syscall(SYS_rename, from, to);
}

int mkdir(const char *path, mode_t mode) {
  return fails(counts_files) ? -1 : (int)syscall(SYS_mkdirat, AT_FDCWD, path, mode);
}

extern void *__libc_malloc(size_t bytes);
extern void *__libc_memalign(size_t alignment, size_t bytes);
void *malloc(size_t bytes) {
  if (fails(counts_memory)) {
    errno = ENOMEM;
    return NULL;
  }
  return __libc_malloc(bytes);
}

int pthread_create(pthread_t *thread, const pthread_attr_t *attributes, void *(*run)(void *), void *argument) {
  static int (*real)(pthread_t *, const pthread_attr_t *, void *(*)(void *), void *);
  if (!real) real = (int (*)(pthread_t *, const pthread_attr_t *, void *(*)(void *), void *))dlsym(RTLD_NEXT, "pthread_create");
  return fails(counts_threads) ? EAGAIN : real(thread, attributes, run, argument);
}
