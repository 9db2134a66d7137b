#include <sys/mman.h>

#include <cerrno>
#include <cstring>

#include "content_store.h"
#include "hybrid_trainer/core/units.h"

namespace hybrid_trainer {

namespace {

/// Small blocks share their pages with others, which would be unlocked with them.
constexpr std::size_t kLeastLockedBytes = 4096;

void lock_pages(const Tensor& tensor) {
  if (tensor.bytes() < kLeastLockedBytes || mlock(tensor.raw(), tensor.bytes()) == 0) return;
  throw IoError(concat("cannot lock ", units::bytes(tensor.bytes()),
                       " of host memory: ", std::strerror(errno),
                       "; raise the limit (ulimit -l), or set "
                       "predict_aware_memory.offload_strategy to cpu_offload"));
}

}  // namespace

void PoolStore::keep(const std::vector<OffloadSlot>& slots, const Stream& stream) {
  try {
    for (const OffloadSlot& slot : slots) {
      copies_.push_back(Tensor::empty_like(*slot.tensor, slot.tensor->kind(), host_));
      if (locks_) lock_pages(copies_.back());
      copy_or_wait(copies_.back(), *slot.tensor, stream);
    }
  } catch (...) {
    stream.synchronize();
    forget();
    throw;
  }
}

void PoolStore::write_to(const std::vector<Tensor>& tensors, const Stream& stream) const {
  for (std::size_t i = 0; i < tensors.size(); ++i) {
    if (ContentStore::blocks(stream)) {
      // One plain copy: this runs beside a training step, whose threads the parallel copy() would
      // compete with.
      std::memcpy(tensors[i].raw(), copies_[i].raw(), tensors[i].bytes());
    } else {
      copy_or_wait(tensors[i], copies_[i], stream);
    }
  }
}

void PoolStore::prefetch() {
  for (const Tensor& kept : copies_) {
    if (!kept.device().simulated) posix_madvise(kept.raw(), kept.bytes(), POSIX_MADV_WILLNEED);
  }
}

void PoolStore::forget() {
  if (locks_) {
    for (const Tensor& kept : copies_)
      if (kept.bytes() >= kLeastLockedBytes) munlock(kept.raw(), kept.bytes());
  }
  copies_.clear();
  host_.pool()->trim();
}

void ZeroStore::write_to(const std::vector<Tensor>& tensors, const Stream& stream) const {
  for (const Tensor& tensor : tensors) {
    if (!blocks(stream)) {
      fill_zero(tensor, stream);
    } else {
      std::memset(tensor.raw(), 0, tensor.bytes());
    }
  }
}

}  // namespace hybrid_trainer
