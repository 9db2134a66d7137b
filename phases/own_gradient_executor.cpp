#include <optional>

#include "hybrid_trainer/core/error.h"
#include "phases/phase_executor.h"

namespace hybrid_trainer {

void OwnGradientExecutor::run(const Batch& batch, PhaseOutcome& outcome) {
  outcome.loss = parts_.model.wait_for_own_gradient(batch);
  outcome.cost += 1;
  if (const auto arrived = parts_.model.wait_for_late_gradient(false)) {
    update(parts_, *arrived, outcome,
           [&](bool applies) { judge(parts_.model.wait_for_late_update(applies), outcome); });
  }
  parts_.model.predict_weights();
}

/// Where one ends the run, those after it are waited for all the same.
void settle(PhaseParts& parts, PhaseOutcome& outcome) {
  std::optional<Diverged> end;
  while (const auto arrived = parts.model.wait_for_late_gradient(true)) {
    try {
      update(parts, *arrived, outcome,
             [&](bool applies) { parts.model.wait_for_late_update(applies); });
    } catch (const Diverged& error) {
      end = error;
    }
  }
  parts.model.wait_for_exact_weights();
  if (end) throw Diverged(*end);
}

}  // namespace hybrid_trainer
