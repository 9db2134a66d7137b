#pragma once

#include <functional>
#include <string>
#include <vector>

#include "hybrid_trainer/core/batch.h"
#include "hybrid_trainer/core/phase.h"
#include "hybrid_trainer/core/state.h"

namespace hybrid_trainer {

/// A weight tensor as the phases see it: its name, the f32 master and, after measure_gradient, its gradient.
struct WeightView {
  std::string name;
  Tensor value;
  Tensor gradient;  // undefined while freed (in Predict)
};

struct GradientMeasurement {
  double loss = 0;  // mean over the batch, at the weights where the gradient was taken
  double norm = 0;  // global L2 norm of the gradient before clipping
  bool finite() const;
};

/// The few things that a phase does to a model. The trainer implements it over a LossModel, an Optimizer and the memory plan;
/// tests implement it over a quadratic bowl.
class Trainable {
 public:
  virtual ~Trainable() = default;
  /// Makes the phase's precision and memory hold: entering Predict frees gradients and moves the optimizer state out (see
  /// begin_restore), leaving it waits until the state is back. Called on every phase change and before the first step.
  virtual void enter_phase(Phase phase) = 0;
  /// Starts to bring the optimizer state back in the background; called `async_restore_lookahead` steps before Correct.
  virtual void begin_restore() = 0;
  /// Forward only: mean loss of the batch at the present weights. Blocks.
  virtual double wait_for_loss(const Batch& batch) = 0;
  /// Forward and backward over all micro-batches; leaves gradients in weights(); weights and moments stay. Blocks.
  virtual GradientMeasurement wait_for_gradient(const Batch& batch) = 0;
  /// The optimizer's update with the gradient of the last measurement (clipped) and the schedule's learning rate of now.
  virtual void apply_gradient() = 0;
  /// All weights in a fixed order. The views stay valid until the next enter_phase or wait_for_gradient.
  virtual std::vector<WeightView> weights() = 0;
  /// After somebody changed weights().value in place: refreshes working copies.
  virtual void weights_changed() = 0;
  /// What the optimizer would do next from its moments alone, one tensor per weight. Needs the optimizer state on the device.
  virtual void write_momentum_directions(const std::vector<Tensor>& directions) = 0;
  /// Copies what can be rolled back and is about to change: weights; and, since the moments lie untouched from here to the
  /// decision, the counters. Restores them bit for bit.
  virtual void save_snapshot() = 0;
  virtual void restore_snapshot() = 0;
  virtual void drop_snapshot() = 0;
  /// Weights = snapshot + fraction·(present − snapshot); 0 is restore_snapshot bit for bit, 1 changes nothing.
  virtual void shrink_towards_snapshot(double fraction) = 0;
  virtual const Stream& stream() const = 0;
  /// Learning rate of the step to come.
  virtual double learning_rate() const = 0;
};

}  // namespace hybrid_trainer
