#pragma once

#include <memory>
#include <string>
#include <vector>

#include "hybrid_trainer/core/batch.h"
#include "hybrid_trainer/core/state.h"
#include "hybrid_trainer/phases/phase_config.h"
#include "hybrid_trainer/phases/phase_controller.h"
#include "hybrid_trainer/phases/phase_outcome.h"
#include "hybrid_trainer/phases/refusal.h"
#include "hybrid_trainer/phases/trainable.h"

namespace hybrid_trainer {

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
  /// Before the first step of Correct.
  virtual void enter_correct(PhaseOutcome& outcome) = 0;
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

 protected:
  PhaseParts& parts_;
};

/// What makes a method. A new one is a folder of its own, its group in PhaseConfig, and a row.
struct MethodRow {
  const char* name;  // of phases.method, and of its group
  const std::vector<Refusal>& (*refusals)();
  std::string (*text)(const PhaseConfig& config);  // see PhaseConfig::predict_text
  std::unique_ptr<Method> (*make)(PhaseParts& parts);
};

/// The kinds of tests, for lists of refusals.
using Kind = KeyTest::Kind;

/// Gradients in 16 bits, for methods that update at once.
Refusal refusal_of_rounded_gradients();
/// Recoveries that act on a confidence and a predictor, for methods that have neither.
Refusal refusal_of_prediction_recoveries();
/// What methods refuse in which ranks run ahead of one another, of memory, optimizers and ranks.
std::vector<Refusal> refusals_ahead_of_ranks();

}  // namespace hybrid_trainer
