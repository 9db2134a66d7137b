#include "src/trainer/asynchronous_optimizer.h"

#include <utility>

#include "hybrid_trainer/core/error.h"
#include "hybrid_trainer/core/profile.h"

namespace hybrid_trainer {

void AsynchronousOptimizer::enter_predict() {
  try {
    optimizer().begin_lag(step_.rates().rates_from(0), step_.stream());
  } catch (const OutOfMemory& error) {
    tell_(concat("updates are not late: ", error.what()));
  }
}

DelayedUpdate AsynchronousOptimizer::wait_for_update(bool finite) {
  if (!optimizer().is_late()) {
    if (finite) step_.apply_gradient();
    return {};
  }
  if (finite) step_.finish_batch();
  const StepPartTimer timer(step_.stream(), StepPart::kUpdate);
  ArrivedUpdate arrived =
      optimizer().wait_for_late_step({.finite = finite,
                                      .learning_rate = static_cast<float>(step_.rates().rate()),
                                      .gradient_scale = step_.scales().update_scale(),
                                      .rates_to_come = step_.rates().rates_from(1)},
                                     step_.stream());
  return {arrived.prediction_error, std::move(arrived.worst_weight), true, arrived.lag};
}

void AsynchronousOptimizer::wait_for_exact_weights() {
  optimizer().wait_for_exact_weights(step_.stream());
}

void AsynchronousOptimizer::save(State& state) const { optimizer().save_late(state); }

void AsynchronousOptimizer::load(const State& state, const Precision& of_predict) {
  step_.compute_in(of_predict, true);
  optimizer().load_late(state, step_.rates().rates_from(0), step_.stream());
}

}  // namespace hybrid_trainer
