#pragma once

#include "hybrid_trainer/core/memory_pool.h"
#include "hybrid_trainer/core/phase.h"
#include "hybrid_trainer/memory/memory_config.h"

namespace hybrid_trainer {

/// Level of device memory use. Levels above kNormal begin at 90, 92, 95 and 97 % of the budget.
enum class MemoryStatus { kNormal, kTarget, kWarning, kCritical, kEmergency };
const char* name_of(MemoryStatus status);

struct MemoryReading {
  MemoryStatus status = MemoryStatus::kNormal;
  double share = 0;  // peak of the step as a share of the budget
  /// Predicted peak of the phase after 100 more steps, scaled to 0 at kTarget and 1 at the budget.
  double risk = 0;
  bool leaks = false;  // whether live memory after a step grew in each recent step of the phase
  /// Largest micro-batch, in examples, that keeps every phase so far within kTarget, assuming that
  /// activations, logits and workspace are proportional to it. At least 1; 0 if there is no budget.
  std::int64_t recommended_micro_batch = 0;
};

/// Monitors device memory over steps. Readings depend only on observations, not on time.
class MemoryMonitor {
 public:
  /// Monitors without a budget if `budget_bytes` is nullopt: every status is then normal, but leaks
  /// are detected.
  explicit MemoryMonitor(std::optional<std::size_t> budget_bytes) : budget_bytes_(budget_bytes) {}
  MemoryReading observe(Phase phase, const MemoryUse& use, std::int64_t micro_batch);

 private:
  std::int64_t recommended_micro_batch() const;
  struct History {
    std::vector<double> peaks, live;  // values of the last steps of the phase
    double max_examples = 0;          // examples that fit kTarget at the last step; initially 0
  };

  std::optional<std::size_t> budget_bytes_;
  std::array<History, kPhases> history_;
};

}  // namespace hybrid_trainer
