#pragma once

#include <memory>
#include <vector>

#include "hybrid_trainer/phases/divergence_monitor.h"
#include "hybrid_trainer/phases/phase_machine.h"
#include "hybrid_trainer/phases/predictor.h"
#include "phases/direction_trust.h"
#include "phases/predict_gate.h"
#include "phases/prediction_line.h"

namespace hybrid_trainer {

/// The prediction under way, from the first step of Predict to the decision in Correct.
struct Jump {
  bool open = false;  // there is one, and it is not decided on yet
  std::int64_t planned_steps = 0;
  std::int64_t steps = 0;  // done in Predict
  double step_length = 1;  // of the next move, in positions on the line
  double limit = 0;        // position where, by a micro-correction, the slope vanishes; 0: none
  double start_loss = 0;   // at the snapshot, of the first forward: no dropout, Predict's precision
  double mean_loss = 0;    // of the last gradients before: with dropout, in Full's precision
  double slope = 0;        // expected loss change per position at the snapshot
  double curvature = 0;    // of the loss along the line, from micro-corrections
  double confidence = 0;
  double cost = 0;
  bool trial = false;
  bool stop = false;
  bool failed = false;         // a loss on the way was not finite
  std::vector<Batch> batches;  // of Predict, in order; the first ones are the probes

  /// Of the loss, from the snapshot to a position.
  double expected_change(double position) const {
    return slope * position + 0.5 * curvature * position * position;
  }
};

/// What the executors of the phases work on.
struct PhaseParts {
  PhaseParts(Trainable& trained, const PhaseMachine::Setup& given);

  Trainable& model;
  const PhaseMachine::Setup setup;
  DivergenceMonitor monitor;
  std::unique_ptr<Predictor> predictor;
  DirectionTrust trust;
  PredictGate gate;
  PredictionLine line;
  Jump jump;
  PhaseStatistics statistics;

  Phase phase = Phase::kWarmup;        // of the step to come
  Phase entered = Phase::kWarmup;      // whose executor was entered last
  Phase model_phase = Phase::kWarmup;  // that the model is in: Full's in Correct after a revert
  bool has_entered = false;
  std::int64_t steps_in_phase = 0;
  std::int64_t skipped_in_a_row = 0;
  Signal signal = Signal::kNone;  // of the last update
  double aim_cost = 0;            // of the directions since the last prediction
  PredictGate::Verdict verdict = PredictGate::Verdict::kUntried;  // last reported

  const PhaseConfig& config() const { return setup.phases; }
  bool predicts() const { return config().max_predict_steps > 0; }
  /// Remaining steps of the run.
  std::int64_t steps_to_come() const;
  /// Brings the model into a phase.
  void enter_model(Phase wanted);
  /// Points the line along the predictor's direction, at its cost; false where it has none yet.
  bool aim(PhaseOutcome& outcome);
  /// Slopes that the confidence needs; not more than a Full phase can give.
  std::int64_t slopes_needed() const;
  /// Ends the prediction: informs the gate, frees the line, restarts the predictor.
  void close_jump(const PredictGate::Jump& result);

  void save(State& state) const;
  void load(const State& state);
};

}  // namespace hybrid_trainer
