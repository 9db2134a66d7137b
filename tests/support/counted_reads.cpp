#include "tests/support/counted_reads.h"

#include <sys/syscall.h>
#include <unistd.h>

namespace hybrid_trainer {
namespace {

thread_local std::size_t bytes_read = 0;

}  // namespace

std::size_t bytes_read_by_this_thread() { return bytes_read; }

}  // namespace hybrid_trainer

extern "C" ssize_t pread(int file, void* to, size_t bytes, off_t offset) {
  const ssize_t got = ::syscall(SYS_pread64, file, to, bytes, offset);
  if (got > 0) hybrid_trainer::bytes_read += static_cast<std::size_t>(got);
  return got;
}
