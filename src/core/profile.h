#pragma once

#include <array>
#include <cstdint>

#include "hybrid_trainer/core/stream.h"
#include "src/core/clock.h"

namespace hybrid_trainer {

enum class Work {
  kProduct,
  kAttention,
  kNormalization,
  kElementwise,  // activations, dropout, residuals, casts, bias gradients
  kEmbedding,
  kLoss,
  kReduction,  // norms and dot products of gradients and weights
  kOptimizer,
};
inline constexpr std::size_t kWorks = 8;

enum class StepPart { kForward, kBackward, kUpdate, kOther };
inline constexpr std::size_t kStepParts = 4;

const char* name_of(Work work);      // "product"
const char* name_of(StepPart part);  // "forward"

/// Time profile of steps: seconds and calls of kernels by kind of work and step part, and total
/// seconds by step part. A profiled stream synchronizes around each kernel, so steps are slower.
class Profile {
 public:
  struct Entry {
    double seconds = 0;
    std::int64_t calls = 0;
  };
  const Entry& of(StepPart part, Work work) const {
    return kernels_[index(part)][static_cast<std::size_t>(work)];
  }
  Entry of(Work work) const;
  double seconds_of(StepPart part) const { return parts_[index(part)]; }
  void clear() { *this = {}; }

 private:
  friend class KernelTimer;
  friend class StepPartTimer;
  static std::size_t index(StepPart part) { return static_cast<std::size_t>(part); }
  std::array<std::array<Entry, kWorks>, kStepParts> kernels_{};
  std::array<double, kStepParts> parts_{};
  StepPart part_ = StepPart::kOther;  // current part
};

/// Times its scope as one kernel. Synchronizes if the stream has a profile, otherwise does nothing.
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

/// Attributes the time and the kernels of its scope, except in nested scopes, to a step part.
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
  StepPart before_ = StepPart::kOther;
  Clock::time_point begin_;
};

}  // namespace hybrid_trainer
