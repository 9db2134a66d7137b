#include "memory/weight_queue.h"

#include <algorithm>

#include "hybrid_trainer/core/error.h"

namespace hybrid_trainer {

Tensor WeightQueue::acquire(const Tensor& home, const Stream& stream) {
  if (failure_) std::rethrow_exception(failure_);
  Tensor here;
  if (ahead_.is_from(home)) here = ahead_.target();
  ahead_.wait();
  if (!here) {
    if (back_.is_to(home)) wait_for_write();
    here = Tensor::empty_like(home, home.kind(), stream);
    if (!here.device().simulated) copy_in_this_thread(here, home);
  }
  held_.push_back(home.raw());
  followed_[last_] = home;
  last_ = {last_.second, home.raw()};
  read_ahead(stream);
  return here;
}

/// In backward another one follows than in forward, so that two places tell which. Not where memory
/// is too small for it, nor what may change before it is used.
void WeightQueue::read_ahead(const Stream& stream) {
  const auto next = followed_.find(last_);
  if (next == followed_.end()) return;
  const Tensor& home = next->second;
  if (std::find(held_.begin(), held_.end(), home.raw()) != held_.end()) return;
  if (back_.is_to(home)) wait_for_write();
  try {
    ahead_.begin(Tensor::empty_like(home, home.kind(), stream), home);
  } catch (const OutOfMemory&) {
  }
}

void WeightQueue::release(const Tensor& home, const Tensor& here, bool changed) noexcept {
  std::erase(held_, home.raw());
  if (!changed) return;
  try {
    wait_for_write();
    back_.begin(home, here);
  } catch (...) {
    failure_ = std::current_exception();
  }
}

void WeightQueue::wait_for_write() {
  try {
    back_.wait();
  } catch (...) {
    failure_ = std::current_exception();
    throw;
  }
}

void WeightQueue::settle() {
  if (failure_) std::rethrow_exception(failure_);
  ahead_.wait();
  wait_for_write();
}

void WeightQueue::forget(const Tensor& home) noexcept {
  try {
    settle();
  } catch (...) {
    failure_ = std::current_exception();
  }
  std::erase(held_, home.raw());
  followed_.clear();
  last_ = {};
}

}  // namespace hybrid_trainer
