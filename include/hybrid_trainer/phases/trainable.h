#pragma once

#include <cmath>
#include <optional>

#include "hybrid_trainer/core/batch.h"
#include "hybrid_trainer/core/phase.h"
#include "hybrid_trainer/core/stream.h"
#include "hybrid_trainer/core/tensor.h"

namespace hybrid_trainer {

struct GradientMeasurement {
  double loss = 0;  // mean over the batch, at the weights of the gradient
  double norm = 0;  // global L2 norm of the gradient before clipping
  /// New, lower loss scale; set if the gradient overflowed only because of fp16 products. The
  /// update is then skipped, which does not indicate a problem of the model.
  std::optional<double> lowered_loss_scale{};
  bool finite() const { return std::isfinite(loss) && std::isfinite(norm); }
};

class PendingWork;

/// Snapshot of the weights and batches of a prediction, so that it can be undone.
class Rollback {
 public:
  virtual ~Rollback() = default;
  /// Copies the weights and keeps the copy until drop_snapshot. Checkpoints include the copy.
  virtual void save_snapshot() = 0;
  /// Restores the copy bit for bit, any number of times.
  virtual void restore_snapshot() = 0;
  virtual void drop_snapshot() = 0;
  /// Copies a step's batch and keeps the copy with the snapshot until the prediction is decided on,
  /// so a step on this batch has as much device memory as any other. Blocks.
  virtual Batch keep_batch(const Batch& batch) = 0;
  /// Copies a kept batch to memory that a step can read. Blocks.
  virtual Batch fetch_batch(const Batch& kept) = 0;
  /// Makes schedule and dropout act as they did `steps` steps earlier, until the next call.
  /// Replaying earlier batches is then bit-identical to the original training on them.
  virtual void rewind(std::int64_t steps) = 0;
};

/// Weights, and directions in their shapes. Lists have one f32 tensor per weight, in fixed order.
class WeightSpace {
 public:
  virtual ~WeightSpace() = default;
  /// Returns uninitialized tensors at the weights' locations.
  virtual std::vector<Tensor> empty_like_weights(MemoryKind kind) = 0;
  /// Returns tensors for directions that only the calls below use; they may be on the host.
  virtual std::vector<Tensor> empty_directions() = 0;
  /// direction = Σ factors[i]·of[i]; may be of[0]. Tensors: empty_like_weights or empty_directions.
  virtual void write_direction(const Tensor& direction, const std::vector<Tensor>& of,
                               const std::vector<float>& factors) = 0;
  /// Copies the FP32 master weights to `to`.
  virtual void copy_weights(const std::vector<Tensor>& to) = 0;
  /// Computes to = kept·to + added·masters, with `to` from empty_directions. Does not read `to` if
  /// `kept` is 0.
  virtual void add_weights(const std::vector<Tensor>& to, float kept, float added) = 0;
  /// Returns the inner product of two tensors at a weight's location. Blocks.
  virtual double wait_for_dot(const Tensor& x, const Tensor& y) = 0;
  /// Adds length·directions to the weights.
  virtual void move_along(const std::vector<Tensor>& directions, double length) = 0;
  /// Returns the inner product of the last measured gradient with the directions, over all weights
  /// that have a gradient. Blocks.
  virtual double wait_for_slope(const std::vector<Tensor>& directions) = 0;
  /// Writes the update that the optimizer would make from its moments only, at the current learning
  /// rate. Requires the optimizer state on the device, so it is never called in Predict.
  virtual void write_momentum_directions(const std::vector<Tensor>& directions) = 0;
  /// Reports that a prediction has moved the weights by length·directions for good. An average of
  /// the weights moves equally.
  virtual void follow(const std::vector<Tensor>& directions, double length) = 0;
};

/// Operations of a phase on a model. The trainer implements them with a LossModel, an Optimizer and
/// the memory plan; tests implement them with a quadratic function. Moments and counters change
/// only in apply_gradient and in the calls of pending(). Neither is called between a snapshot and
/// the decision on it, so a rollback need not restore moments and counters.
class Trainable {
 public:
  virtual ~Trainable() = default;
  /// Sets the phase's precision and memory. Entering Predict frees gradients and offloads unneeded
  /// tensors until their next use. Called on each phase change, at the start and after a resume.
  virtual void enter_phase(Phase phase) = 0;
  /// Starts to load offloaded optimizer state into host memory. Called in Predict, at most once.
  virtual void begin_restore() = 0;
  /// Returns the mean loss of the batch's first `examples` at the current weights. Runs only
  /// forward passes, in micro-batches of a step's size. Keeps the gradients, except that in Predict
  /// it frees the gradients of a micro-correction. Blocks.
  virtual double wait_for_loss(const Batch& batch, std::int64_t examples) = 0;
  /// Runs forward and backward over all micro-batches and keeps the gradients. Weights and moments
  /// do not change, except that the update may already be made if only apply_gradient would read
  /// the gradients. Works in every phase; in Predict it allocates the gradients. Blocks.
  virtual GradientMeasurement wait_for_gradient(const Batch& batch) = 0;
  /// Updates the weights by the (clipped) gradient of the last measurement at the current learning
  /// rate. Must not be called in a forward-only Predict or after a non-finite measurement.
  virtual void apply_gradient() = 0;
  /// Multiplies the schedule's learning rate by `factor` from now on.
  virtual void scale_learning_rate(double factor) = 0;
  /// Returns the floating-point operations of forward and backward, as counted by the model.
  virtual double step_flops(const Batch& batch) const = 0;
  /// Returns whether several ranks train together. In that case, local events, such as full memory
  /// on one rank, must not change what the rank does.
  virtual bool is_distributed() const = 0;
  virtual const Stream& stream() const = 0;
  virtual WeightSpace& weights() = 0;
  virtual Rollback& rollback() = 0;
  /// Returns the configured method's interface, which the method's folder defines.
  virtual PendingWork& pending() = 0;
};

}  // namespace hybrid_trainer
