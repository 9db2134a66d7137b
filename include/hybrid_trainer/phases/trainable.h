#pragma once

#include <cmath>

#include "hybrid_trainer/core/batch.h"
#include "hybrid_trainer/core/phase.h"

namespace hybrid_trainer {

struct GradientMeasurement {
  double loss = 0;  // mean over the batch, with the weights of the gradient
  double norm = 0;  // global L2 norm of the gradient before clipping
  /// The lowered loss scale if fp16 overflowed; the update is then skipped.
  std::optional<double> lowered_loss_scale{};
  bool finite() const { return std::isfinite(loss) && std::isfinite(norm); }
};

class PendingWork;

/// Snapshot of the weights and batches of a prediction, to revert it.
class Rollback {
 public:
  virtual ~Rollback() = default;
  /// Copies the weights and keeps the copy until drop_snapshot. Checkpoints include the copy.
  virtual void save_snapshot() = 0;
  /// Restores the copied weights bit for bit. Can be called repeatedly.
  virtual void restore_snapshot() = 0;
  virtual void drop_snapshot() = 0;
  /// Returns a copy of a step's batch, outside the device memory that steps need. Blocks.
  virtual Batch keep_batch(const Batch& batch) = 0;
  /// Copies a kept batch to memory that a step can read. Blocks.
  virtual Batch fetch_batch(const Batch& kept) = 0;
  /// Sets schedule and dropout back by `steps` steps, until the next call, to replay batches.
  virtual void rewind(std::int64_t steps) = 0;
};

/// Operations on weights and directions. Both are lists with one f32 tensor per weight, in the
/// order of the weights.
class WeightSpace {
 public:
  virtual ~WeightSpace() = default;
  /// Returns uninitialized tensors at the locations of the weights.
  virtual std::vector<Tensor> empty_like_weights(MemoryKind kind) = 0;
  /// Returns tensors for directions, perhaps on the host. Access them only through the functions
  /// below.
  virtual std::vector<Tensor> empty_directions() = 0;
  /// direction = Σ factors[i]·of[i]. `direction` may be of[0].
  virtual void write_direction(const Tensor& direction, const std::vector<Tensor>& of,
                               const std::vector<float>& factors) = 0;
  /// Copies the FP32 master weights to `to`.
  virtual void copy_weights(const std::vector<Tensor>& to) = 0;
  /// to = kept·to + added·(FP32 masters), with `to` from empty_directions.
  virtual void add_weights(const std::vector<Tensor>& to, float kept, float added) = 0;
  /// Returns the inner product of two tensors that are stored like the weights. Blocks.
  virtual double wait_for_dot(const Tensor& x, const Tensor& y) = 0;
  /// Adds length·directions to the weights.
  virtual void move_along(const std::vector<Tensor>& directions, double length) = 0;
  /// Returns the inner product of the last measured gradient with the directions. Blocks.
  virtual double wait_for_slope(const std::vector<Tensor>& directions) = 0;
  /// Writes the update from the moments at the current rate. Never called in Predict.
  virtual void write_momentum_directions(const std::vector<Tensor>& directions) = 0;
  /// Reports an accepted prediction, so that a weight average moves by the same amount.
  virtual void follow(const std::vector<Tensor>& directions, double length) = 0;
};

/// Operations that phases need from a model; the trainer and tests implement them. Only
/// apply_gradient and functions of pending() change moments and counters. They do not do so between
/// a snapshot and the decision, so restore_snapshot need not restore moments and counters.
class Trainable {
 public:
  virtual ~Trainable() = default;
  /// Sets the precision and memory of a phase, at the start, after a resume, and on each change.
  /// Predict frees gradients and offloads unused tensors.
  virtual void enter_phase(Phase phase) = 0;
  /// Starts to load offloaded optimizer state into host memory. Called in Predict, at most once.
  virtual void begin_restore() = 0;
  /// Returns the mean loss of the first `examples` examples, by forward passes. Keeps gradients,
  /// except for a micro-correction in Predict. Blocks.
  virtual double wait_for_loss(const Batch& batch, std::int64_t examples) = 0;
  /// Runs forward and backward over all micro-batches and keeps the gradients. May update weights
  /// and moments in backward if only apply_gradient would read the gradients. Blocks.
  virtual GradientMeasurement wait_for_gradient(const Batch& batch) = 0;
  /// Updates the weights by the (clipped) gradient of the last measurement, which must be finite.
  /// Not for a forward-only Predict.
  virtual void apply_gradient() = 0;
  /// Multiplies the schedule's learning rate by `factor` from now on.
  virtual void scale_learning_rate(double factor) = 0;
  /// Returns the floating-point operations of forward and backward, as counted by the model.
  virtual double step_flops(const Batch& batch) const = 0;
  /// Returns whether several ranks train together. If so, local events, such as full memory on one
  /// rank, must not change the sequence of operations.
  virtual bool is_distributed() const = 0;
  virtual const Stream& stream() const = 0;
  virtual WeightSpace& weights() = 0;
  virtual Rollback& rollback() = 0;
  /// Returns the interface of the configured method, defined in the method's folder.
  virtual PendingWork& pending() = 0;
};

}  // namespace hybrid_trainer
