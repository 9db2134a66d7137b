#pragma once

#include "hybrid_trainer/core/state.h"
#include "hybrid_trainer/distributed/communicator.h"
#include "hybrid_trainer/nn/loss_model.h"

namespace hybrid_trainer {

/// Moves the biases by which routers choose experts, so that loads become even without a loss. Source:
/// Wang et al. 2024, "Auxiliary-loss-free load balancing", arXiv 2408.15664. `ranks` may be null; a
/// collective otherwise. Of what backward passes have counted and ExpertWatch has not read.
void move_selection_biases(LossModel& model, Communicator* ranks, const Stream& stream);
/// As views, beside the weights.
void save_selection_biases(LossModel& model, State& state);
/// Throws DataError where the state is of a model without them.
void load_selection_biases(LossModel& model, const State& state, const Stream& stream);

}  // namespace hybrid_trainer
