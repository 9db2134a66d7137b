#pragma once

#include <array>
#include <cstdint>

#include "hybrid_trainer/core/stream.h"
#include "src/core/clock.h"

namespace hybrid_trainer {

/// Purpose of a kernel.
enum class Work {
  kProduct,
  kAttention,
  kNormalization,
  kElementwise,  // activations, dropout, residuals, casts, gradients of biases
  kEmbedding,
  kLoss,
  kReduction,  // norms and dot products of gradients and weights
  kOptimizer,
};
inline constexpr std::size_t kWorks = 8;

/// Which part of a step a kernel ran in.
enum class StepPart { kForward, kBackward, kUpdate, kElsewhere };
inline constexpr std::size_t kStepParts = 4;

const char* name_of(Work work);      // "product"
const char* name_of(StepPart part);  // "forward"

/// Where the time of steps goes: seconds and calls of kernels by their work and the part of the
/// step, and seconds of each part as a whole. A stream with a profile (Stream::set_profile)
/// synchronizes before and after each kernel, so that on CUDA the times are true and the step is
/// slower than without.
class Profile {
 public:
  struct Entry {
    double seconds = 0;
    std::int64_t calls = 0;
  };
  const Entry& of(StepPart part, Work work) const {
    return kernels_[index(part)][static_cast<std::size_t>(work)];
  }
  /// Over all parts.
  Entry of(Work work) const;
  double seconds_of(StepPart part) const { return parts_[index(part)]; }
  void clear() { *this = {}; }

 private:
  friend class KernelTimer;
  friend class StepPartTimer;
  static std::size_t index(StepPart part) { return static_cast<std::size_t>(part); }
  std::array<std::array<Entry, kWorks>, kStepParts> kernels_{};
  std::array<double, kStepParts> parts_{};
  StepPart part_ = StepPart::kElsewhere;  // the one running now
};

/// Counts the time from here to the end of the scope as one kernel. Without a profile on the
/// stream, does nothing and reads no clock; otherwise synchronizes.
class KernelTimer {
 public:
  KernelTimer(const Stream& stream, Work work);
  ~KernelTimer();
  KernelTimer(const KernelTimer&) = delete;
  KernelTimer& operator=(const KernelTimer&) = delete;

 private:
  const Stream& stream_;
  Profile* profile_;
  Work work_;
  Clock::time_point begin_;
};

/// Counts the scope as a part of the step, and the kernels in it as belonging to that part. One
/// within another takes its time from it.
class StepPartTimer {
 public:
  StepPartTimer(const Stream& stream, StepPart part);
  ~StepPartTimer();
  StepPartTimer(const StepPartTimer&) = delete;
  StepPartTimer& operator=(const StepPartTimer&) = delete;

 private:
  const Stream& stream_;
  Profile* profile_;
  StepPart part_;
  StepPart before_ = StepPart::kElsewhere;
  Clock::time_point begin_;
};

}  // namespace hybrid_trainer
