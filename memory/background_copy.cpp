#include "memory/background_copy.h"

namespace hybrid_trainer {

BackgroundCopy::~BackgroundCopy() {
  if (running_.valid()) running_.wait();
}

void BackgroundCopy::begin(const Tensor& to, const Tensor& from) {
  wait();
  to_ = to;
  from_ = from;
  if (to.device().simulated || from.device().simulated) return;
  running_ = std::async(std::launch::async, [this] { copy_in_this_thread(to_, from_); });
}

void BackgroundCopy::wait() {
  try {
    if (running_.valid()) running_.get();
  } catch (...) {
    to_ = from_ = {};
    throw;
  }
  to_ = from_ = {};
}

}  // namespace hybrid_trainer
