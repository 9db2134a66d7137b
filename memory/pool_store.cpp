#include <sys/mman.h>

#include <cerrno>
#include <cstring>

#include "hybrid_trainer/core/units.h"
#include "memory/content_store.h"

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

bool PoolStore::begin_staging() {
  if (!staging_ || !staged_.empty()) return false;
  const Stream host(staging_);
  try {
    for (const Tensor& kept : copies_)
      staged_.push_back(Tensor::empty_like(kept, kept.kind(), host));
  } catch (const OutOfMemory&) {  // it comes straight from where it is
    staged_.clear();
    staging_->trim();
  }
  return !staged_.empty() && !host_.device().simulated;
}

void PoolStore::stage() {
  try {
    for (std::size_t i = 0; i < staged_.size(); ++i) copy_in_this_thread(staged_[i], copies_[i]);
  } catch (const IoError&) {
    staged_.clear();
  }
}

void PoolStore::write_to(const std::vector<Tensor>& tensors, const Stream& stream) {
  const std::vector<Tensor>& from = staged_.empty() ? copies_ : staged_;
  for (std::size_t i = 0; i < tensors.size(); ++i) {
    if (ContentStore::blocks(stream)) {
      copy_in_this_thread(tensors[i], from[i]);
    } else {
      copy_or_wait(tensors[i], from[i], stream);
    }
  }
}

void PoolStore::forget() {
  if (locks_) {
    for (const Tensor& kept : copies_)
      if (kept.bytes() >= kLeastLockedBytes) munlock(kept.raw(), kept.bytes());
  }
  copies_.clear();
  host_.pool()->trim();
  if (staged_.empty()) return;
  staged_.clear();
  staging_->trim();
}

void ZeroStore::write_to(const std::vector<Tensor>& tensors, const Stream& stream) {
  for (const Tensor& tensor : tensors) {
    if (!blocks(stream)) {
      fill_zero(tensor, stream);
    } else {
      std::memset(tensor.raw(), 0, tensor.bytes());
    }
  }
}

}  // namespace hybrid_trainer
