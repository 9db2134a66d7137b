#pragma once

#include <limits>

#include "hybrid_trainer/core/batch.h"
#include "hybrid_trainer/core/phase.h"
#include "hybrid_trainer/core/state.h"
#include "hybrid_trainer/phases/phase_machine.h"
#include "phases/engine.h"
#include "phases/refusal.h"

namespace hybrid_trainer {

/// All that the choice of the next phase depends on.
struct PhaseSignals {
  std::int64_t steps_in_phase = 0;   // done in the current phase
  std::int64_t planned_predict = 0;  // steps granted to the current Predict
  std::int64_t steps_to_come = std::numeric_limits<std::int64_t>::max();  // remaining in the run
  bool may_predict = false;     // direction measured, and the gate open or a trial due
  bool trial_overdue = false;   // a trial has waited long for a confident direction
  bool healthy = true;          // the divergence monitor sees nothing
  double confidence = 0;        // probability that the direction lowers the loss
  double least_confidence = 0;  // that Predict waits for, unless a trial is overdue
  bool stop_predict = false;    // the loss left its band or the slope changed sign
};

/// The state machine: Warmup → Full → Predict → Correct → Full …; pure. The last step of a run is
/// never a Predict step, so that each prediction is decided on.
constexpr Phase next_phase(Phase now, const PhaseSignals& signals, const PhaseConfig& config) {
  switch (now) {
    case Phase::kWarmup:
      return signals.steps_in_phase >= config.warmup_steps ? Phase::kFull : Phase::kWarmup;
    case Phase::kFull: {
      const bool due = config.max_predict_steps > 0 && signals.steps_in_phase >= config.full_steps;
      const bool good = signals.may_predict && signals.healthy &&
                        (signals.trial_overdue || signals.confidence >= signals.least_confidence);
      const bool room = signals.steps_to_come >= 2;
      return due && good && room ? Phase::kPredict : Phase::kFull;
    }
    case Phase::kPredict: {
      const bool over = signals.stop_predict || signals.steps_to_come <= 1 ||
                        signals.steps_in_phase >= signals.planned_predict;
      return over ? Phase::kCorrect : Phase::kPredict;
    }
    case Phase::kCorrect:
      return signals.steps_in_phase >= config.correct_steps ? Phase::kFull : Phase::kCorrect;
  }
  return Phase::kFull;
}

struct PhaseParts;

/// A way to go on in Predict. The phase machine says which phase comes, and asks the method what a
/// step of it does. A step adds to `outcome`, which has its phase and the cost of entering it.
class Method {
 public:
  explicit Method(PhaseParts& parts) : parts_(parts) {}
  virtual ~Method() = default;

  /// Fills in whether Predict may come or has to end. By default Predict comes when it is due and is
  /// as long as the config says.
  virtual void allow(PhaseSignals& signals);
  /// A step of Warmup or Full: by default gradient and update.
  virtual void train(const Batch& batch, PhaseOutcome& outcome);
  /// Before the first step of Predict. May turn to another phase, which the step is of then.
  virtual void enter_predict(PhaseOutcome& outcome);
  /// A step of Predict. Where it turns to another phase, it has not used the batch.
  virtual void predict(const Batch& batch, PhaseOutcome& outcome) = 0;
  /// Before the first step of Correct: by default drains first.
  virtual void enter_correct(PhaseOutcome& outcome);
  /// A step of Correct: by default gradient and update.
  virtual void correct(const Batch& batch, PhaseOutcome& outcome);
  /// Waits for what ranks have pending, so that the weights are the exact ones and can be saved.
  virtual void drain(PhaseOutcome&) {}
  /// An update was made.
  virtual void see_update(const GradientMeasurement&, PhaseOutcome&) {}
  /// A step is over, and the next one's phase is known.
  virtual void report(PhaseOutcome&) {}
  /// Forgets what predictions are made of (Recovery::kResetPredictor).
  virtual void reset_predictor() {}
  /// No Predict begins from now on; one that is in progress goes on to its end.
  virtual void give_up() {}
  /// Steps since the weights were last decided on.
  virtual std::int64_t undecided_steps() const { return 0; }
  virtual void save(State&) const {}
  virtual void load(const State&) {}

  /// What a row takes of a method that has none of these.
  static std::unique_ptr<PendingWork> make_pending(const PendingSetup&) {
    return std::make_unique<PendingWork>();
  }
  static std::unique_ptr<Optimizer> make_optimizer(const OptimizerSetup&) { return nullptr; }
  static MethodTraits traits(const PhaseConfig&) { return {}; }

 protected:
  PhaseParts& parts_;
};

/// What makes a method. A new one is a folder of its own, its group in PhaseConfig, and a row.
struct MethodRow {
  const char* name;  // of phases.method, and of its group
  const std::vector<Refusal>& (*refusals)();
  std::string (*text)(const PhaseConfig& config);  // see PhaseConfig::predict_text
  std::unique_ptr<Method> (*make)(PhaseParts& parts);
  std::unique_ptr<PendingWork> (*make_pending)(const PendingSetup& setup) = Method::make_pending;
  MethodTraits (*traits)(const PhaseConfig& config) = Method::traits;
  std::unique_ptr<Optimizer> (*make_optimizer)(const OptimizerSetup& setup) =
      Method::make_optimizer;
};

/// The kinds of tests, for lists of refusals.
using Kind = KeyTest::Kind;

/// Gradients in 16 bits, for methods that update at once.
Refusal refusal_of_rounded_gradients();
/// Recoveries that act on a confidence and a predictor, for methods that have neither.
Refusal refusal_of_prediction_recoveries();
/// What methods refuse in which ranks run ahead of one another, of memory, optimizers and ranks.
std::vector<Refusal> refusals_ahead_of_ranks();

/// The row of the method M.
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

/// Each beside its method.
MethodRow skip_backward_row();
MethodRow asynchronous_optimizer_row();
MethodRow asynchronous_gradients_row();
MethodRow local_sgd_row();

/// All methods, in one table.
const std::vector<MethodRow>& methods();

}  // namespace hybrid_trainer
