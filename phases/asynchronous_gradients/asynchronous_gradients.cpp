#include <optional>

#include "phases/method.h"
#include "phases/phase_parts.h"

namespace hybrid_trainer {

namespace {

/// Asynchronous gradients: a step of Predict goes on with this rank's gradient alone; that of all ranks
/// is judged, and makes its update, when it arrives. The loss of a step is that of the step whose
/// gradient arrived in it, of all ranks; in the first ones, where none did, that of its own.
class AsynchronousGradientsMethod final : public Method {
 public:
  using Method::Method;
  static const std::vector<Refusal>& refusals();
  static std::string text(const PhaseConfig& config) {
    const AsynchronousGradientsConfig& group = config.asynchronous_gradients;
    return concat(" with asynchronous gradients ", group.delay,
                  group.delay == 1 ? " step" : " steps", " late, predicted by ", group.device_side);
  }

  void predict(const Batch& batch, PhaseOutcome& outcome) override;
  void enter_correct(PhaseOutcome& outcome) override {
    drain(outcome);
    parts_.enter_model(Phase::kCorrect);
  }
  void drain(PhaseOutcome& outcome) override;
};

const std::vector<Refusal>& AsynchronousGradientsMethod::refusals() {
  static const std::vector<Refusal> rows = [] {
    std::vector<Refusal> all = refusals_ahead_of_ranks();
    all.push_back({{"distributed.zero"},
                   Kind::kIsOneOf,
                   {"0", "1"},
                   "a rank's own gradient and the weights are whole"});
    all.push_back({{"phases.asynchronous_gradients.device_side"},
                   Kind::kIsOneOf,
                   {"anticipated", "shared", "momentum", "none"},
                   "the others are for phases.method asynchronous_optimizer"});
    return all;
  }();
  return rows;
}

void AsynchronousGradientsMethod::predict(const Batch& batch, PhaseOutcome& outcome) {
  const AsynchronousGradientsConfig& group = parts_.config().asynchronous_gradients;
  if (parts_.steps_in_phase == 0) {
    tell(outcome, concat("other ranks' gradients arrive ", group.delay,
                         group.delay == 1 ? " step" : " steps", " late, for at most ",
                         parts_.config().max_predict_steps, " steps"));
  }
  DelayedGradients& gradients = *parts_.model.support().gradients;
  outcome.loss = gradients.wait_for_own_gradient(batch);
  outcome.cost += 1;
  if (const auto arrived = gradients.wait_for_gradient(false)) {
    update(parts_, *arrived, outcome, [&](bool applies) {
      judge_update(parts_, gradients.apply(applies),
                   {group.prediction_error_limit, group.forecasts_updates()}, outcome);
    });
  }
  gradients.predict_weights();
}

/// Where one ends the run, those after it are waited for all the same.
void AsynchronousGradientsMethod::drain(PhaseOutcome& outcome) {
  DelayedGradients& gradients = *parts_.model.support().gradients;
  std::optional<Diverged> end;
  while (const auto arrived = gradients.wait_for_gradient(true)) {
    try {
      update(parts_, *arrived, outcome, [&](bool applies) { gradients.apply(applies); });
    } catch (const Diverged& error) {
      end = error;
    }
  }
  gradients.wait_for_exact_weights();
  if (end) throw Diverged(*end);
}

}  // namespace

MethodRow asynchronous_gradients_row() {
  return row_of<AsynchronousGradientsMethod>("asynchronous_gradients");
}

}  // namespace hybrid_trainer
