#include "src/core/profile.h"

namespace hybrid_trainer {

const char* name_of(Work work) {
  static constexpr const char* kNames[] = {"product",   "attention", "normalization", "elementwise",
                                           "embedding", "loss",      "reduction",     "optimizer"};
  static_assert(std::size(kNames) == kWorks);
  return kNames[static_cast<std::size_t>(work)];
}

const char* name_of(StepPart part) {
  static constexpr const char* kNames[] = {"forward", "backward", "update", "elsewhere"};
  static_assert(std::size(kNames) == kStepParts);
  return kNames[static_cast<std::size_t>(part)];
}

Profile::Entry Profile::of(Work work) const {
  Entry sum;
  for (const auto& part : kernels_) {
    sum.seconds += part[static_cast<std::size_t>(work)].seconds;
    sum.calls += part[static_cast<std::size_t>(work)].calls;
  }
  return sum;
}

KernelTimer::KernelTimer(const Stream& stream, Work work)
    : stream_(stream), profile_(stream.profile()), work_(work) {
  if (profile_ == nullptr) return;
  stream_.synchronize();
  begin_ = Clock::now();
}

KernelTimer::~KernelTimer() {
  if (profile_ == nullptr) return;
  stream_.synchronize();
  auto& entry =
      profile_->kernels_[Profile::index(profile_->part_)][static_cast<std::size_t>(work_)];
  entry.seconds += seconds_since(begin_);
  ++entry.calls;
}

StepPartTimer::StepPartTimer(const Stream& stream, StepPart part)
    : stream_(stream), profile_(stream.profile()), part_(part) {
  if (profile_ == nullptr) return;
  stream_.synchronize();
  before_ = std::exchange(profile_->part_, part);
  begin_ = Clock::now();
}

StepPartTimer::~StepPartTimer() {
  if (profile_ == nullptr) return;
  stream_.synchronize();
  const double seconds = seconds_since(begin_);
  profile_->parts_[Profile::index(part_)] += seconds;
  if (before_ != StepPart::kOther) profile_->parts_[Profile::index(before_)] -= seconds;
  profile_->part_ = before_;
}

}  // namespace hybrid_trainer
