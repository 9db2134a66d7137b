#include "src/trainer/pending_work.h"

#include <utility>

#include "hybrid_trainer/core/error.h"
#include "src/core/profile.h"

namespace hybrid_trainer {

namespace {

/// Delayed updates by a SpeculativeOptimizer, clipped and at the schedule's rates.
class AsynchronousOptimizer final : public PendingWork, public DelayedOptimizer {
 public:
  AsynchronousOptimizer(TrainingStep& step, std::function<void(const std::string&)> tell)
      : step_(step), tell_(std::move(tell)) {}
  DelayedUpdate wait_for_update(bool finite) override;
  void wait_for_exact_weights() override;

  MethodSupport support() override { return {.optimizer = this}; }
  /// Updates stay in step where there is no room for pending ones.
  void enter_predict() override;
  void drop() override { wait_for_exact_weights(); }
  void save(State& state) const override;
  void load(const State& state, const Precision& of_predict) override;

 private:
  SpeculativeOptimizer& optimizer() const { return *step_.speculation(); }
  TrainingStep& step_;
  std::function<void(const std::string&)> tell_;
};

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

}  // namespace

std::unique_ptr<PendingWork> make_pending_work(const HybridTrainerConfig& config,
                                               TrainingStep& step,
                                               std::function<void(const std::string&)> tell) {
  if (config.phases.delays_updates())
    return std::make_unique<AsynchronousOptimizer>(step, std::move(tell));
  if (config.phases.trains_locally()) return std::make_unique<LocalSgd>(config, step);
  if (config.phases.delays_gradients())
    return std::make_unique<AsynchronousGradients>(config, step);
  return std::make_unique<PendingWork>();
}

}  // namespace hybrid_trainer
