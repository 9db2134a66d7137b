#pragma once

#include <string>

#include "hybrid_trainer/core/state.h"
#include "src/step/training_step.h"

namespace hybrid_trainer {

/// Copies a saved tensor. Blocks. Throws DataError where it has another shape.
void copy_saved(const Tensor& to, const State& state, const std::string& name,
                const Stream& stream);

/// Adds the masters as "model.…" and the optimizer state as "optimizer.…", as views. `is_dropped`:
/// the optimizer's counter begins anew.
void save_weights(State& state, TrainingStep& step, bool is_dropped);
/// Loads what save_weights saved. Throws DataError where it is of another model or optimizer.
void load_weights(const State& state, TrainingStep& step);

}  // namespace hybrid_trainer
