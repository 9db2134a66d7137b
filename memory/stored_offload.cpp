#include "memory/stored_offload.h"

#include "hybrid_trainer/core/clock.h"
#include "hybrid_trainer/core/cuda_runtime.h"
#include "hybrid_trainer/core/error.h"
#include "hybrid_trainer/core/started_thread.h"

namespace hybrid_trainer {

namespace {

template <class Work>
double seconds_of(const Work& work) {
  const auto begin = Clock::now();
  work();
  return seconds_since(begin);
}

/// Seconds of work in a thread of its own, on this thread's device.
template <class Work>
std::future<double> seconds_beside(const Work& work) {
  return start_thread([&] {
    return std::async(std::launch::async, [device = CallersDevice(), work] {
      device.use();
      return work();
    });
  });
}

}  // namespace

StoredOffload::~StoredOffload() {
  if (pending_.valid()) pending_.wait();
  if (staging_.valid()) staging_.wait();
  if (transfer_) transfer_->synchronize();
}

MoveOutResult StoredOffload::move_out(std::vector<OffloadSlot> slots, const Stream& stream) {
  require(now_ == Whereabouts::kResident, "move_out: the slots of the last call are still out");
  std::vector<Tensor> tensors;
  for (const OffloadSlot& slot : slots) {
    if (!slot.tensor->defined()) {
      throw Error(ExitCode::kInternal, concat("move_out: ", slot.name, " is not in place"));
    }
    tensors.push_back(*slot.tensor);
  }
  if (store_is_full_) moved_in_.synchronize();
  forget_what_is_back();
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
  now_ = Whereabouts::kLeaving;
  release_moved_out();
  const std::size_t freed_bytes = live_before - stream.pool()->use().live_total;
  return {now_ == Whereabouts::kAway ? freed_bytes : bytes - taken, ""};
}

void StoredOffload::release_moved_out() {
  forget_what_is_back();
  if (leaving_.empty() || !moved_out_.reached()) return;
  leaving_.clear();
  stream_->pool()->trim();
  if (now_ == Whereabouts::kLeaving) now_ = Whereabouts::kAway;
}

void StoredOffload::forget_what_is_back() {
  if (!store_is_full_ || !moved_in_.reached()) return;
  store_->forget();
  store_is_full_ = false;
}

void StoredOffload::begin_restore() {
  if (!async_ || now_ != Whereabouts::kAway || !store_->begin_staging()) return;
  staging_ = seconds_beside([this] { return seconds_of([&] { store_->stage(); }); });
}

void StoredOffload::begin_return() {
  if (now_ == Whereabouts::kLeaving) release_moved_out();
  if (!async_ || now_ != Whereabouts::kAway) return;  // not beside what is still leaving
  try {
    allocate_returning();
    start_restore(true);
  } catch (const std::exception&) {  // wait_until_restored tries again, and reports it
    give_up_restore();
  }
}

void StoredOffload::give_up_restore() {
  if (pending_.valid()) pending_.wait();
  if (staging_.valid()) staging_.wait();
  pending_ = {};
  returning_.clear();
  if (now_ == Whereabouts::kReturning) now_ = Whereabouts::kAway;
}

/// In this thread, so that the copies come after all earlier uses of the memory.
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
  now_ = Whereabouts::kReturning;
  if (in_background && store_->blocks(*transfer_)) {
    pending_ = seconds_beside([this] {
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
  if (now_ == Whereabouts::kResident) return;
  const auto begin = Clock::now();
  try {
    if (now_ != Whereabouts::kReturning) {
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
  now_ = Whereabouts::kResident;
  store_is_full_ = true;
  release_moved_out();
}

}  // namespace hybrid_trainer
