#pragma once

#include <functional>
#include <string>

#include "phases/phase_parts.h"

namespace hybrid_trainer {

/// Judges the measurement and applies its gradient, or skips the update where it is not finite or the
/// config wants that, and does what else it wants. Fills loss, norm, updates, recovery and event.
/// Throws Diverged after too many skips in a row, or where the run is to end. `apply`, in place of
/// the model's, is also told of a skipped one.
void update(PhaseParts& parts, const GradientMeasurement& measurement, PhaseOutcome& outcome,
            const std::function<void(bool applies)>& apply = {});

/// Appends to outcome.event.
void tell(PhaseOutcome& outcome, const std::string& text);

/// How far updates may be mispredicted before Predict ends early.
struct PredictionErrorLimit {
  double share = 0;        // of the exact updates' size; 0: never
  bool forecasts = false;  // else a large error means nothing
};

/// Fills in what arrived with an exact update, and ends Predict where it was predicted too badly.
void judge_update(PhaseParts& parts, const DelayedUpdate& arrived,
                  const PredictionErrorLimit& limit, PhaseOutcome& outcome);

}  // namespace hybrid_trainer
