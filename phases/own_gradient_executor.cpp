#include "hybrid_trainer/core/error.h"
#include "phases/phase_executor.h"

namespace hybrid_trainer {

void OwnGradientExecutor::run(const Batch& batch, PhaseOutcome& outcome) {
  const std::int64_t delay = parts_.config().delay();
  if (parts_.steps_in_phase == 0) {
    tell(outcome, concat("other ranks' gradients arrive ", delay, delay == 1 ? " step" : " steps",
                         " late, for at most ", parts_.config().max_predict_steps, " steps"));
  }
  DelayedGradients& gradients = *parts_.model.support().gradients;
  outcome.loss = gradients.wait_for_own_gradient(batch);
  outcome.cost += 1;
  if (const auto arrived = gradients.wait_for_gradient(false)) {
    update(parts_, *arrived, outcome,
           [&](bool applies) { judge(gradients.apply(applies), outcome); });
  }
  gradients.predict_weights();
}

}  // namespace hybrid_trainer
