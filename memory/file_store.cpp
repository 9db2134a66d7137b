#include <fcntl.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <cstdlib>
#include <cstring>

#include "content_store.h"
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

FileStore::FileStore(const std::string& folder) : folder_(folder), file_(open_nameless(folder)) {
  if (file_ >= 0) return;
  throw CannotCreate(concat("predict_aware_memory.offload_target: cannot make a file in ", folder,
                            ": ", std::strerror(errno),
                            "; name a folder that can be written to, or memory"));
}

FileStore::~FileStore() { close(file_); }

void FileStore::keep(const std::vector<OffloadSlot>& slots, const Stream& stream) {
  off_t at = 0;
  for (const OffloadSlot& slot : slots) {
    const Tensor readable = wait_for_host(*slot.tensor, stream);
    const char* from = static_cast<const char*>(readable.raw());
    const auto write = [&](std::size_t done, std::size_t count) {
      return pwrite(file_, from + done, count, at + static_cast<off_t>(done));
    };
    if (!transfer_all(slot.tensor->bytes(), write)) {
      const std::string reason = std::strerror(errno);
      forget();
      throw IoError(concat("cannot write to the offload file in ", folder_, ": ", reason,
                           "; free some space there or set predict_aware_memory.offload_target"));
    }
    at += static_cast<off_t>(slot.tensor->bytes());
  }
}

void FileStore::write_to(const std::vector<Tensor>& tensors, const Stream& stream) const {
  const Stream host(MemoryPool::create("host"));
  off_t at = 0;
  for (const Tensor& tensor : tensors) {
    const bool in_place = tensor.device().type == DeviceType::kCpu;
    const Tensor target =
        in_place ? tensor : Tensor::empty_like(tensor, MemoryKind::kWorkspace, host);
    char* to = static_cast<char*>(target.raw());
    const auto read = [&](std::size_t done, std::size_t count) {
      return pread(file_, to + done, count, at + static_cast<off_t>(done));
    };
    if (!transfer_all(tensor.bytes(), read)) {
      throw IoError(concat("cannot read the offload file in ", folder_, ": ", std::strerror(errno),
                           "; resume from the last checkpoint"));
    }
    if (!in_place) wait_for_copy(tensor, target, stream);
    at += static_cast<off_t>(tensor.bytes());
  }
}

void FileStore::forget() {
  // A failure leaves the space taken until the strategy is destroyed, and does no other harm.
  if (ftruncate(file_, 0) != 0) errno = 0;
}

}  // namespace hybrid_trainer
