#pragma once

#include "hybrid_trainer/core/state.h"
#include "src/trainer/weight_parts.h"

namespace hybrid_trainer {

/// A checkpoint knows no ranks: its tensors are whole. What the state has of a weight is known by
/// its name, "optimizer.WEIGHT.m", or by the weight's place among all, "phases.….3".

/// Of each rank's state, whose tensors lie in host memory: rank 0 gets the whole one, others are left
/// without tensors. A collective; blocks.
void gather_state(State& state, const WeightParts& parts, const Stream& host);

/// What of a whole state is this rank's own, as views of it.
State own_part_of(const State& whole, const WeightParts& parts);

}  // namespace hybrid_trainer
