#pragma once

#include <cmath>
#include <cstdint>
#include <optional>
#include <string>

#include "hybrid_trainer/core/batch.h"

namespace hybrid_trainer {

struct GradientMeasurement {
  double loss = 0;  // mean over the batch, at the weights where the gradient was taken
  double norm = 0;  // global L2 norm of the gradient before clipping
  /// Where only the products of fp16 were too small for the gradient: the factor of the loss from now
  /// on. The update is skipped, and nothing is wrong with the model.
  std::optional<double> lowered_loss_scale{};
  bool finite() const { return std::isfinite(loss) && std::isfinite(norm); }
};

/// The exact update that arrived in a step.
struct DelayedUpdate {
  /// ‖predicted − exact‖/‖exact‖ of the pending updates that end with it; absent where none arrived.
  std::optional<double> prediction_error;
  std::string worst_weight;  // where it was largest
  bool is_late = false;      // else memory had no room, and the update was made at once
  std::int64_t lag = 0;      // updates pending while the step was computed
};

/// The optimizer of a model whose exact updates arrive in later steps: phases.method
/// asynchronous_optimizer.
class DelayedOptimizer {
 public:
  virtual ~DelayedOptimizer() = default;
  /// Starts the update by the last measurement's gradient, or, not `finite`, none. The weights become
  /// those predicted for the next step. Blocks only where the update that is due has not arrived.
  virtual DelayedUpdate wait_for_update(bool finite) = 0;
  /// Waits for all pending updates; the weights are the exact ones.
  virtual void wait_for_exact_weights() = 0;
};

/// The gradients of a model whose other ranks' parts arrive in later steps: phases.method
/// asynchronous_gradients.
class DelayedGradients {
 public:
  virtual ~DelayedGradients() = default;
  /// Computes forward and backward of this rank's own micro-batches and starts sending their
  /// gradient to the others. Returns their mean loss. Blocks.
  virtual double wait_for_own_gradient(const Batch& batch) = 0;
  /// Returns the gradient of all ranks of the step `lag` before the last one, or, of `all` that are
  /// pending, the oldest; absent where there is none. Blocks only where it has not arrived.
  virtual std::optional<GradientMeasurement> wait_for_gradient(bool all) = 0;
  /// Makes the update by the gradient that arrived, or, not `finite`, none.
  virtual DelayedUpdate apply(bool finite) = 0;
  /// The weights become those predicted for the next step from the pending gradients.
  virtual void predict_weights() = 0;
  /// The weights become the exact ones. All pending gradients were waited for before.
  virtual void wait_for_exact_weights() = 0;
};

/// A step that this rank made by itself, and what the ranks told each other in it.
struct LocalStep {
  GradientMeasurement own;          // over its own micro-batches
  std::int64_t since_exchange = 0;  // steps since one began, this one among them
  /// Where an exchange arrived, of fragments the last one: steps of all ranks until it began, and those
  /// of them that made no update because something was not finite.
  std::int64_t steps = 0, skipped = 0;
};

/// A model that each rank trains by itself between two exchanges of weights: phases.method local_sgd.
class LocalTraining {
 public:
  virtual ~LocalTraining() = default;
  /// Makes a step with an update of its own, which is skipped where it is not finite. Blocks; for
  /// other ranks only where an exchange is due and has not arrived.
  virtual LocalStep wait_for_step(const Batch& batch) = 0;
  /// Waits until all ranks have the same weights and optimizer state. Returns what they told each
  /// other meanwhile, of steps made by themselves.
  virtual LocalStep wait_for_exact_weights() = 0;
};

/// What the model supports beyond Trainable: the one that its configuration's method needs.
struct MethodSupport {
  DelayedOptimizer* optimizer = nullptr;
  DelayedGradients* gradients = nullptr;
  LocalTraining* local = nullptr;
};

}  // namespace hybrid_trainer
