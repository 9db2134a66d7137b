#include "hybrid_trainer/core/error.h"
#include "phases/phase_executor.h"

namespace hybrid_trainer {

void OwnGradientExecutor::run(const Batch& batch, PhaseOutcome& outcome) {
  const PhaseConfig& config = parts_.config();
  if (parts_.steps_in_phase == 0) {
    tell(outcome,
         concat("other ranks' gradients arrive ", config.lag, config.lag == 1 ? " step" : " steps",
                " late, for at most ", config.max_predict_steps, " steps"));
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
