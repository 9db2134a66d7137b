#pragma once

#include <cstdint>
#include <vector>

#include "hybrid_trainer/core/batch.h"
#include "hybrid_trainer/core/phase.h"

namespace hybrid_trainer {

/// A prediction, from the first step of Predict to the decision in Correct.
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
  double cost = 0;  // aimed steps, forwards, micro-corrections, probes, repeated gradients
  bool trial = false;
  bool stop = false;
  bool failed = false;           // a loss on the way was not finite
  bool lacks_room = false;       // memory was too short on the way
  std::vector<Batch> batches{};  // of Predict, kept, in order; the first ones are the probes

  // Of the decision.
  Decision decision = Decision::kNone;
  double kept_fraction = 0;
  double paired_drop = 0;       // loss before less loss after on the same batches; 0 if reverted
  std::int64_t updates = 0;     // of Correct
  double left_at = 0;           // its position in the end; 0 if reverted
  double next_step_length = 1;  // of the next one's first step, as this one teaches
  bool moved = true;

  /// Of the loss, from the snapshot to a position.
  double expected_change(double position) const {
    return slope * position + 0.5 * curvature * position * position;
  }
};

}  // namespace hybrid_trainer
