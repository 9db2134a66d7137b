#include "scratch_file.h"

#include <fcntl.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <cstdlib>
#include <cstring>

#include "hybrid_trainer/core/error.h"

namespace hybrid_trainer {
namespace {

constexpr std::size_t kChunkBytes = std::size_t{16} << 20;

/// A new unnamed file in the folder, or -1 with errno.
int open_nameless(const std::string& folder) {
  const int file = open(folder.c_str(), O_TMPFILE | O_RDWR | O_CLOEXEC, 0600);
  if (file >= 0 || (errno != EOPNOTSUPP && errno != EISDIR)) return file;
  std::string path = folder + "/.offload-XXXXXX";
  const int named = mkostemp(path.data(), O_CLOEXEC);
  if (named >= 0) unlink(path.c_str());
  return named;
}

/// Runs `transfer(bytes done, bytes to do)`, a pread or pwrite, until all bytes are transferred.
/// False with errno on failure.
template <class Transfer>
bool transfer_all(std::size_t bytes, const Transfer& transfer) {
  for (std::size_t done = 0; done < bytes;) {
    const ssize_t count = transfer(done, std::min(kChunkBytes, bytes - done));
    if (count == 0) errno = EIO;
    if (count == 0 || (count < 0 && errno != EINTR)) return false;
    if (count > 0) done += static_cast<std::size_t>(count);
  }
  return true;
}

}  // namespace

ScratchFile::ScratchFile(std::string folder, const char* key)
    : folder_(std::move(folder)), key_(key), file_(open_nameless(folder_)) {
  if (file_ >= 0) return;
  throw CannotCreate(concat(key_, ": cannot make a file in ", folder_, ": ", std::strerror(errno),
                            "; name a folder that can be written to"));
}

ScratchFile::~ScratchFile() { close(file_); }

void ScratchFile::wait_for_write(const Tensor& from, std::int64_t at, const Stream& stream) {
  const Tensor readable = wait_for_host(from, stream);
  const char* const data = static_cast<const char*>(readable.raw());
  const auto write = [&](std::size_t done, std::size_t count) {
    return pwrite(file_, data + done, count, at + static_cast<off_t>(done));
  };
  if (transfer_all(from.bytes(), write)) return;
  throw IoError(concat("cannot write to the scratch file in ", folder_, ": ", std::strerror(errno),
                       "; free some space there or set ", key_));
}

void ScratchFile::wait_for_read(const Tensor& to, std::int64_t at, const Stream& stream) const {
  const bool in_place = to.device().type == DeviceType::kCpu;
  const Stream host(MemoryPool::create("host"));
  const Tensor target = in_place ? to : Tensor::empty_like(to, MemoryKind::kWorkspace, host);
  char* const data = static_cast<char*>(target.raw());
  const auto read = [&](std::size_t done, std::size_t count) {
    return pread(file_, data + done, count, at + static_cast<off_t>(done));
  };
  if (!transfer_all(to.bytes(), read)) {
    throw IoError(concat("cannot read the scratch file in ", folder_, ": ", std::strerror(errno),
                         "; resume from the last checkpoint"));
  }
  if (!in_place) wait_for_copy(to, target, stream);
}

void ScratchFile::clear() {
  // A failure leaves the space taken until this is destroyed, and does no other harm.
  if (ftruncate(file_, 0) != 0) errno = 0;
}

}  // namespace hybrid_trainer
