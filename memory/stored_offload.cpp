#include "memory/stored_offload.h"

#include <sys/mman.h>
#include <cerrno>
#include <cstring>

#include "kernels/quantized/quantization.h"
#include "src/core/clock.h"
#include "src/core/cuda_runtime.h"
#include "src/core/messages.h"
#include "src/core/threads.h"

namespace hybrid_trainer {

namespace {

/// Minimum size of a locked block. Unlocking a smaller one would unlock others on its pages.
constexpr std::size_t kMinLockedBytes = 4096;

void lock_pages(const Tensor& tensor) {
  if (tensor.bytes() < kMinLockedBytes || mlock(tensor.raw(), tensor.bytes()) == 0) return;
  throw IoError(concat("cannot lock ", units::bytes(tensor.bytes()),
                       " of host memory: ", std::strerror(errno),
                       "; raise the limit (ulimit -l), or set "
                       "predict_aware_memory.offload_strategy to cpu_offload"));
}

kernels::QuantizationMap map_of(SlotRounding rounding) {
  return rounding == SlotRounding::kNonNegative ? kernels::QuantizationMap::kUnsigned
                                                : kernels::QuantizationMap::kSigned;
}

template <class Work>
double seconds_of(const Work& work) {
  const auto begin = Clock::now();
  work();
  return seconds_since(begin);
}

template <class Work>
std::future<double> run_in_background(const Work& work) {
  return start_thread([&] {
    return std::async(std::launch::async, [device = CallerDevice(), work] {
      device.use();
      return work();
    });
  });
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
  } catch (const OutOfMemory&) {  // write_to then reads the slow medium
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
      if (kept.bytes() >= kMinLockedBytes) munlock(kept.raw(), kept.bytes());
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

void CompressedStore::keep(const std::vector<OffloadSlot>& slots, const Stream& stream) {
  try {
    for (const OffloadSlot& slot : slots) {
      const Tensor& tensor = *slot.tensor;
      Kept kept{tensor, Tensor{}, slot.rounding};
      if (tensor.dtype() == DType::kF32 && slot.rounding != SlotRounding::kNone) {
        const Shape blocks{kernels::quantization_blocks(tensor.elements())};
        kept.codes = Tensor::empty(tensor.shape(), DType::kU8, tensor.kind(), stream);
        kept.scales = Tensor::empty(blocks, DType::kF32, tensor.kind(), stream);
        kernels::quantize(kept.codes, kept.scales, tensor, map_of(kept.rounding), stream);
      }
      kept_.push_back(std::move(kept));
    }
  } catch (...) {
    stream.synchronize();
    forget();
    throw;
  }
}

void CompressedStore::write_to(const std::vector<Tensor>& tensors, const Stream& stream) {
  for (std::size_t i = 0; i < tensors.size(); ++i) {
    const auto& [codes, scales, rounding] = kept_[i];
    if (scales) {
      kernels::dequantize(tensors[i], codes, scales, map_of(rounding), stream);
    } else {
      copy(tensors[i], codes, stream);
    }
  }
}

StoredOffload::~StoredOffload() {
  if (pending_.valid()) pending_.wait();
  if (staging_.valid()) staging_.wait();
  if (transfer_) transfer_->synchronize();
}

MoveOutResult StoredOffload::move_out(std::vector<OffloadSlot> slots, const Stream& stream) {
  require(now_ == Location::kResident, "move_out: the slots of the last call are still offloaded");
  std::vector<Tensor> tensors;
  for (const OffloadSlot& slot : slots) {
    if (!slot.tensor->defined())
      throw Error(ExitCode::kInternal, concat("move_out: ", slot.name, " is already offloaded"));
    tensors.push_back(*slot.tensor);
  }
  if (store_is_full_) moved_in_.synchronize();
  forget_restored();
  stream_ = &stream;
  if (!transfer_) transfer_.emplace(stream.pool());
  ready_.record(stream);
  transfer_->order_after(ready_);
  const std::size_t live_before = stream.pool()->use().live_total;
  try {
    store_->keep(slots, *transfer_);
  } catch (const Error& error) {
    return {0, error.what()};
  }
  moved_out_.record(*transfer_);
  ++use_.times;
  origins_.clear();
  const std::size_t taken = stream.pool()->use().live_total - live_before;  // by the store
  std::size_t bytes = 0;
  for (const OffloadSlot& slot : slots) {
    origins_.push_back({slot.tensor->shape(), slot.tensor->dtype(), slot.tensor->kind()});
    bytes += slot.tensor->bytes();
    *slot.tensor = Tensor{};
  }
  use_.bytes += bytes;
  leaving_ = std::move(tensors);
  slots_ = std::move(slots);
  now_ = Location::kLeaving;
  release_moved_out();
  const std::size_t freed_bytes = live_before - stream.pool()->use().live_total;
  return {now_ == Location::kOffloaded ? freed_bytes : bytes - taken, ""};
}

void StoredOffload::release_moved_out() {
  forget_restored();
  if (leaving_.empty() || !moved_out_.reached()) return;
  leaving_.clear();
  stream_->pool()->trim();
  if (now_ == Location::kLeaving) now_ = Location::kOffloaded;
}

void StoredOffload::forget_restored() {
  if (!store_is_full_ || !moved_in_.reached()) return;
  store_->forget();
  store_is_full_ = false;
}

void StoredOffload::begin_restore() {
  if (!async_ || now_ != Location::kOffloaded || !store_->begin_staging()) return;
  staging_ = run_in_background([this] { return seconds_of([&] { store_->stage(); }); });
}

void StoredOffload::begin_return() {
  if (now_ == Location::kLeaving) release_moved_out();
  if (!async_ || now_ != Location::kOffloaded) return;  // must not overlap with copies out
  try {
    allocate_returning();
    start_restore(true);
  } catch (const std::exception&) {  // wait_until_restored retries and reports it
    give_up_restore();
  }
}

void StoredOffload::give_up_restore() {
  if (pending_.valid()) pending_.wait();
  if (staging_.valid()) staging_.wait();
  pending_ = {};
  returning_.clear();
  if (now_ == Location::kReturning) now_ = Location::kOffloaded;
}

/// Allocates in the calling thread, so that the copies follow all earlier uses of the memory.
void StoredOffload::allocate_returning() {
  release_moved_out();
  std::vector<Tensor> tensors;
  for (const Origin& origin : origins_)
    tensors.push_back(Tensor::empty(origin.shape, origin.dtype, origin.kind, *stream_));
  returning_ = std::move(tensors);
}

void StoredOffload::start_restore(bool in_background) {
  ready_.record(*stream_);
  transfer_->order_after(ready_);
  now_ = Location::kReturning;
  if (in_background && store_->blocks(*transfer_)) {
    pending_ = run_in_background([this] {
      if (staging_.valid()) staging_.wait();
      return seconds_of([&] {
        store_->write_to(returning_, *transfer_);
        transfer_->synchronize();
      });
    });
    return;
  }
  if (staging_.valid()) staging_.wait();
  use_.restore_seconds += seconds_of([&] { store_->write_to(returning_, *transfer_); });
  moved_in_.record(*transfer_);
}

void StoredOffload::wait_until_restored() {
  if (now_ == Location::kResident) return;
  const auto begin = Clock::now();
  try {
    if (now_ != Location::kReturning) {
      moved_out_.synchronize();
      allocate_returning();
      start_restore(false);
    }
    if (pending_.valid()) use_.restore_seconds += pending_.get();
    if (staging_.valid()) use_.restore_seconds += staging_.get();
  } catch (...) {
    give_up_restore();
    throw;
  }
  stream_->order_after(moved_in_);
  for (std::size_t i = 0; i < slots_.size(); ++i) *slots_[i].tensor = returning_[i];
  returning_.clear();
  use_.waited_seconds += seconds_since(begin);
  now_ = Location::kResident;
  store_is_full_ = true;
  release_moved_out();
}

}  // namespace hybrid_trainer
