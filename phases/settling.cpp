// The end of what is under way in Predict without other ranks or the optimizer state.
#include <optional>

#include "hybrid_trainer/core/error.h"
#include "phases/phase_executor.h"

namespace hybrid_trainer {

namespace {

/// Where one ends the run, those after it are waited for all the same.
void settle_gradients(DelayedGradients& gradients, PhaseParts& parts, PhaseOutcome& outcome) {
  std::optional<Diverged> end;
  while (const auto arrived = gradients.wait_for_gradient(true)) {
    try {
      update(parts, *arrived, outcome, [&](bool applies) { gradients.apply(applies); });
    } catch (const Diverged& error) {
      end = error;
    }
  }
  gradients.wait_for_exact_weights();
  if (end) throw Diverged(*end);
}

}  // namespace

void settle(PhaseParts& parts, PhaseOutcome& outcome) {
  const MethodSupport support = parts.model.support();
  if (support.gradients != nullptr) settle_gradients(*support.gradients, parts, outcome);
  if (support.optimizer != nullptr) support.optimizer->wait_for_exact_weights();
  if (support.local != nullptr)
    tell_skipped(parts, support.local->wait_for_exact_weights(), outcome);
}

}  // namespace hybrid_trainer
