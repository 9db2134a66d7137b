#pragma once

#include <cstdint>
#include <limits>

#include "hybrid_trainer/core/phase.h"
#include "hybrid_trainer/phases/phase_config.h"

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

}  // namespace hybrid_trainer
