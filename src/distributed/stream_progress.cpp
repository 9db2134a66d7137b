#include "src/distributed/stream_progress.h"

#include <utility>

#include "hybrid_trainer/core/error.h"

namespace hybrid_trainer {
namespace {

constexpr std::size_t kMostPending = 256;

}  // namespace

void StreamProgress::begin(const Stream& stream) {
  if (pending_.size() >= kMostPending) pending_.front().left.synchronize();
  const std::lock_guard lock(mutex_);
  for (; !pending_.empty() && pending_.front().is_done(); ++done_) {
    spare_.push_back(std::move(pending_.front()));
    pending_.pop_front();
  }
  Collective next;
  if (!spare_.empty()) {
    next = std::move(spare_.back());
    spare_.pop_back();
  }
  next.is_enqueued = false;
  next.entered.record(stream);
  pending_.push_back(std::move(next));
}

void StreamProgress::end(const Stream& stream) {
  const std::lock_guard lock(mutex_);
  pending_.back().left.record(stream);
  pending_.back().is_enqueued = true;
}

RankProgress StreamProgress::so_far() const {
  const std::lock_guard lock(mutex_);
  RankProgress progress{0, done_, done_};
  try {
    for (const Collective& one : pending_) {
      progress.entered += one.entered.reached() ? 1 : 0;
      progress.left += one.is_done() ? 1 : 0;
    }
  } catch (const DeviceError&) {  // which the thread that works with the device tells
  }
  return progress;
}

}  // namespace hybrid_trainer
