#pragma once

#include <functional>

#include "hybrid_trainer/distributed/communicator.h"
#include "hybrid_trainer/io/checkpoint.h"
#include "src/sharding/weight_parts.h"

namespace hybrid_trainer {

/// A checkpoint knows no ranks: what it holds of a weight is whole. What the state has of a weight
/// is known by its name, "optimizer.WEIGHT.m", or by the weight's place among all, "phases.….3".

/// The ranks as they save and read checkpoints together; null: alone.
CheckpointRanks checkpoint_ranks(Communicator* ranks);

/// What a rank writes of its state, as views of it: its own parts of weights, and of what is the
/// same on all ranks an equal share. `parts`: null where all of it is the same.
CheckpointShare own_share(State state, const WeightParts* parts, const CheckpointRanks& ranks);

/// Says which elements of a checkpoint's tensor are this rank's own, and the shape that they have
/// here. `parts` must outlive it.
std::function<WantedElements(const std::string&, const StoredTensor&)> own_elements(
    const WeightParts& parts);

}  // namespace hybrid_trainer
