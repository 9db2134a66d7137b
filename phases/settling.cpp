// The end of what is under way in Predict without other ranks or the optimizer state.
#include <optional>

#include "hybrid_trainer/core/error.h"
#include "phases/phase_executor.h"

namespace hybrid_trainer {

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
  const LocalStep last = parts.model.wait_for_exact_weights();
  if (end) throw Diverged(*end);
  tell_skipped(parts, last, outcome);
}

}  // namespace hybrid_trainer
