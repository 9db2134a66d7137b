#pragma once

#include "hybrid_trainer/planning/memory_plan.h"

namespace hybrid_trainer {

/// Seconds of one rank's Full step.
struct RankStepTime {
  double computing = 0;  // forward and backward of its micro-batches, and its update
  double sending = 0;    // in which what it sends and receives keeps its link busy
  double exposed = 0;    // of these, what nothing that is computed hides
  double seconds() const { return computing + exposed; }
};

/// An estimate for ranks that are as fast as this machine was measured, all over links of as many
/// bytes a second. Without distributed.overlap all is exposed; else what does not fit beside the
/// computing where it may be sent: with zero 0 and 1 gradients beside a rank's last backward pass,
/// with 2 beside all of them, with 1 and 2 the weights beside the next forward pass, with 3 all of it
/// beside both. And, whatever the link, the group of weights that backward completes last, and the
/// one that forward waits for first.
RankStepTime estimate_rank_step(const HybridTrainerConfig& config, Device device, int ranks,
                                const StepTransfer& transfer, const StepRates& rates,
                                double link_bytes_per_second,
                                const ModelRegistry& registry = model_families());

}  // namespace hybrid_trainer
