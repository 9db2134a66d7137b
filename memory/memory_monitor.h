#pragma once

#include "hybrid_trainer/core/memory_pool.h"
#include "hybrid_trainer/core/phase.h"
#include "hybrid_trainer/memory/memory_config.h"

namespace hybrid_trainer {

/// Level of the device's memory use, by shares of the budget: 0.90, 0.92, 0.95 and 0.97.
enum class MemoryStatus { kNormal, kTarget, kWarning, kCritical, kEmergency };
const char* name_of(MemoryStatus status);  // "normal", "target", ...

struct MemoryReading {
  MemoryStatus status = MemoryStatus::kNormal;
  double share = 0;  // of the budget, that the step's peak took
  /// 0 to 1: how far a trend of the phase's peaks, 100 steps on, would go from the target to the
  /// budget.
  double risk = 0;
  bool leaks = false;  // what lives after a step of the phase grew with each of its last steps
  /// Examples of the largest micro-batch with which no phase seen so far would come past the
  /// target, at least 1; 0 without a budget. What a step takes is linear in the examples: the peaks
  /// of activations, logits and workspace grow with them, the rest does not.
  std::int64_t recommended_micro_batch = 0;
};

/// Watches a device's memory from step to step. A reading is a function of the readings before it,
/// never of a clock.
class MemoryMonitor {
 public:
  /// `budget_bytes`: none leaves every status normal, and still finds leaks.
  explicit MemoryMonitor(std::optional<std::size_t> budget_bytes) : budget_bytes_(budget_bytes) {}
  /// `micro_batch`: examples that the step computed with at once.
  MemoryReading observe(Phase phase, const MemoryUse& use, std::int64_t micro_batch);

 private:
  std::int64_t recommended_micro_batch() const;
  struct History {
    std::vector<double> peaks, live;  // of the last steps of the phase
    double most_examples = 0;  // that the target has room for, by the last step; 0 before one
  };

  std::optional<std::size_t> budget_bytes_;
  std::array<History, kPhases> history_;
};

}  // namespace hybrid_trainer
