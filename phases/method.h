#pragma once

#include "hybrid_trainer/phases/phase_machine.h"
#include "phases/engine.h"
#include "phases/refusal.h"

namespace hybrid_trainer {

/// Inputs of the choice of the next phase.
struct PhaseSignals {
  std::int64_t steps_in_phase = 0;   // completed steps of the current phase
  std::int64_t planned_predict = 0;  // maximum length of the current Predict
  std::int64_t remaining_steps = std::numeric_limits<std::int64_t>::max();
  bool may_predict = false;    // the direction is measured, and the gate is open or a probe is due
  bool trial_overdue = false;  // a probe has waited long for a confident direction
  bool healthy = true;         // the divergence monitor has no warning
  double confidence = 0;       // probability that the direction lowers the loss
  double min_confidence = 0;   // confidence that Predict requires, unless a probe is overdue
  bool stop_predict = false;   // the loss is out of bounds, or the slope has changed sign
};

/// Returns the next phase: Warmup → Full → Predict → Correct → Full …. The last step of a run is
/// never in Predict, so Correct decides on every prediction. Pure.
constexpr Phase next_phase(Phase now, const PhaseSignals& signals, const PhaseConfig& config) {
  switch (now) {
    case Phase::kWarmup:
      return signals.steps_in_phase >= config.warmup_steps ? Phase::kFull : Phase::kWarmup;
    case Phase::kFull: {
      const bool due = config.max_predict_steps > 0 && signals.steps_in_phase >= config.full_steps;
      const bool good = signals.may_predict && signals.healthy &&
                        (signals.trial_overdue || signals.confidence >= signals.min_confidence);
      const bool room = signals.remaining_steps >= 2;
      return due && good && room ? Phase::kPredict : Phase::kFull;
    }
    case Phase::kPredict: {
      const bool over = signals.stop_predict || signals.remaining_steps <= 1 ||
                        signals.steps_in_phase >= signals.planned_predict;
      return over ? Phase::kCorrect : Phase::kPredict;
    }
    case Phase::kCorrect:
      return signals.steps_in_phase >= config.correct_steps ? Phase::kFull : Phase::kCorrect;
  }
  return Phase::kFull;
}

struct PhaseParts;

/// Behavior of the configured method: runs the steps of each phase and adds results to `outcome`,
/// which already contains the phase and the cost of entering it.
class Method {
 public:
  explicit Method(PhaseParts& parts) : parts_(parts) {}
  virtual ~Method() = default;

  /// Sets whether Predict may begin or must end. The default uses the configured length.
  virtual void allow(PhaseSignals& signals);
  /// Runs a step of Warmup or Full. The default computes the gradient and updates the weights.
  virtual void train(const Batch& batch, PhaseOutcome& outcome);
  /// Called before the first step of Predict. May turn the step into a step of another phase.
  virtual void enter_predict(PhaseOutcome& outcome);
  /// Runs a step of Predict. May turn it into a step of another phase only before `batch` is used.
  virtual void predict(const Batch& batch, PhaseOutcome& outcome) = 0;
  /// Called before the first step of Correct. The default calls drain.
  virtual void enter_correct(PhaseOutcome& outcome);
  virtual void correct(const Batch& batch, PhaseOutcome& outcome);
  /// Waits for pending messages between ranks, so that weights are exact and can be saved.
  virtual void drain(PhaseOutcome&) {}
  virtual void observe_update(const GradientMeasurement&, PhaseOutcome&) {}
  virtual void report(PhaseOutcome&) {}
  /// Resets the inputs of predictions (Recovery::kResetPredictor).
  virtual void reset_predictor() {}
  /// Disables further predictions. A prediction in progress continues to its end.
  virtual void disable() {}
  /// Returns the number of predicted steps that are not decided on.
  virtual std::int64_t undecided_steps() const { return 0; }
  virtual void save(State&) const {}
  virtual void load(const State&) {}

  /// Defaults of a MethodRow for methods without pending work.
  static std::unique_ptr<PendingWork> make_pending(const PendingSetup&) {
    return std::make_unique<PendingWork>();
  }
  static std::unique_ptr<Optimizer> make_optimizer(const OptimizerSetup&) { return nullptr; }
  static MethodTraits traits(const PhaseConfig&) { return {}; }

 protected:
  PhaseParts& parts_;
};

/// Registry entry of a method. Each has a folder, a group in PhaseConfig, and a row.
struct MethodRow {
  const char* name;  // value of phases.method, and name of the method's group
  const std::vector<Refusal>& (*refusals)();
  std::string (*text)(const PhaseConfig& config);  // see PhaseConfig::predict_text
  std::unique_ptr<Method> (*make)(PhaseParts& parts);
  std::unique_ptr<PendingWork> (*make_pending)(const PendingSetup& setup) = Method::make_pending;
  MethodTraits (*traits)(const PhaseConfig& config) = Method::traits;
  std::unique_ptr<Optimizer> (*make_optimizer)(const OptimizerSetup& setup) =
      Method::make_optimizer;
};

using Kind = KeyTest::Kind;

Refusal refusal_of_rounded_gradients();
Refusal refusal_of_prediction_recoveries();
/// Returns refusals common to methods with delays between ranks: memory, optimizers, ranks.
std::vector<Refusal> refusals_ahead_of_ranks();

template <class M>
MethodRow row_of(const char* name) {
  return {name,
          M::refusals,
          M::text,
          [](PhaseParts& parts) -> std::unique_ptr<Method> { return std::make_unique<M>(parts); },
          M::make_pending,
          M::traits,
          M::make_optimizer};
}

/// Rows of the table. Each is defined in the folder of its method.
MethodRow skip_backward_row();
MethodRow asynchronous_optimizer_row();
MethodRow asynchronous_gradients_row();
MethodRow local_sgd_row();

const std::vector<MethodRow>& methods();

}  // namespace hybrid_trainer
