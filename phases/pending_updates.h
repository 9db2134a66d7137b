#pragma once

#include "phases/phase_parts.h"

namespace hybrid_trainer {

/// How far updates may be mispredicted before Predict ends early.
struct PredictionErrorLimit {
  double share = 0;        // of the exact updates' size; 0: never
  bool forecasts = false;  // else a large error means nothing
};

/// Fills in what arrived with an exact update, and ends Predict where it was predicted too badly.
void judge_update(PhaseParts& parts, const DelayedUpdate& arrived,
                  const PredictionErrorLimit& limit, PhaseOutcome& outcome);

}  // namespace hybrid_trainer
