#include "phases/asynchronous_optimizer/asynchronous_optimizer.h"

#include "phases/pending_updates.h"
#include "phases/update.h"

namespace hybrid_trainer {

std::string AsynchronousOptimizerMethod::text(const PhaseConfig& config) {
  const AsynchronousOptimizerConfig& group = config.asynchronous_optimizer;
  return concat(" with an asynchronous optimizer, updates ", group.delay,
                group.delay == 1 ? " step" : " steps", " late, predicted by ", group.device_side,
                ", exact state in ", group.exact_state == "host" ? "host memory" : "a file");
}

void AsynchronousOptimizerMethod::predict(const Batch& batch, PhaseOutcome& outcome) {
  const GradientMeasurement measurement = parts_.model.wait_for_gradient(batch);
  const AsynchronousOptimizerConfig& group = parts_.config().asynchronous_optimizer;
  outcome.cost += 1;
  update(parts_, measurement, outcome, [&](bool applies) {
    judge_update(parts_, parts_.model.support().optimizer->wait_for_update(applies),
                 {group.prediction_error_limit, group.forecasts_updates()}, outcome);
  });
}

void AsynchronousOptimizerMethod::enter_correct(PhaseOutcome&) {
  parts_.model.support().optimizer->wait_for_exact_weights();
  parts_.enter_model(Phase::kCorrect);
}

}  // namespace hybrid_trainer
