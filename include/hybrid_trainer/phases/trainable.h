#pragma once

#include <cmath>
#include <optional>

#include "hybrid_trainer/core/batch.h"
#include "hybrid_trainer/core/phase.h"
#include "hybrid_trainer/core/stream.h"
#include "hybrid_trainer/core/tensor.h"

namespace hybrid_trainer {

struct GradientMeasurement {
  double loss = 0;  // mean over the batch, at the weights where the gradient was taken
  double norm = 0;  // global L2 norm of the gradient before clipping
  /// Where only the products of fp16 were too small for the gradient: the factor of the loss from now
  /// on. The update is skipped, and nothing is wrong with the model.
  std::optional<double> lowered_loss_scale{};
  bool finite() const { return std::isfinite(loss) && std::isfinite(norm); }
};

class PendingWork;

/// What a prediction keeps so that it can be undone: the weights before it, and its batches.
class Rollback {
 public:
  virtual ~Rollback() = default;
  /// Keeps a copy of the weights until drop_snapshot. While it exists, it is part of what the
  /// trainer saves, as weights and moments are.
  virtual void save_snapshot() = 0;
  /// Writes the copy back bit for bit, any number of times.
  virtual void restore_snapshot() = 0;
  virtual void drop_snapshot() = 0;
  /// Copies a step's batch for as long as a prediction is not decided on. The copy lies where the
  /// snapshot does, so that a step on it finds as much device memory as any other. Blocks.
  virtual Batch keep_batch(const Batch& batch) = 0;
  /// Copies such a batch to where a step can compute with it. Blocks.
  virtual Batch fetch_batch(const Batch& kept) = 0;
  /// Until the next call, schedule and dropout act as `steps` steps before the current one, so that
  /// a replay of earlier batches is bit-identical to having trained on them then.
  virtual void rewind(std::int64_t steps) = 0;
};

/// Weights and directions of their shapes: what a prediction computes with. A list of tensors has one
/// for each weight, f32, in a fixed order.
class WeightSpace {
 public:
  virtual ~WeightSpace() = default;
  /// Tensors that lie as the weights do; not initialized.
  virtual std::vector<Tensor> empty_like_weights(MemoryKind kind) = 0;
  /// Tensors for directions that only the calls below take: they may lie on the host.
  virtual std::vector<Tensor> empty_directions() = 0;
  /// direction = Σ factors·of, each as empty_like_weights or empty_directions makes it; `direction`
  /// may be the first of them.
  virtual void write_direction(const Tensor& direction, const std::vector<Tensor>& of,
                               const std::vector<float>& factors) = 0;
  /// to = the f32 masters.
  virtual void copy_weights(const std::vector<Tensor>& to) = 0;
  /// to = kept·to + added·masters, as empty_directions makes them; kept 0 does not read `to`.
  virtual void add_weights(const std::vector<Tensor>& to, float kept, float added) = 0;
  /// Inner product of two tensors that lie as one of the weights does. Blocks.
  virtual double wait_for_dot(const Tensor& x, const Tensor& y) = 0;
  /// weights += length·directions.
  virtual void move_along(const std::vector<Tensor>& directions, double length) = 0;
  /// Inner product of the last measurement's gradient with the directions, over all weights; a
  /// weight without a gradient adds nothing. Blocks.
  virtual double wait_for_slope(const std::vector<Tensor>& directions) = 0;
  /// Writes what the optimizer would do next from its moments alone at the current learning rate.
  /// Needs the optimizer state on the device, so it is never called in Predict.
  virtual void write_momentum_directions(const std::vector<Tensor>& directions) = 0;
  /// Tells that the weights have moved by length·directions for good: an average of them follows.
  virtual void follow(const std::vector<Tensor>& directions, double length) = 0;
};

/// The few things that every phase does to a model. The trainer implements it over a LossModel, an
/// Optimizer and the memory plan; tests implement it over a quadratic bowl.
///
/// Moments and counters change only in apply_gradient and in the calls of pending(). None of these is
/// called between a snapshot and the decision on it, so a rollback need not restore them.
class Trainable {
 public:
  virtual ~Trainable() = default;
  /// Sets the phase's precision and memory: entering Predict frees gradients and moves out what it
  /// does not need, which comes back from where it is used first. Called on every phase change,
  /// before the first step and after a resume.
  virtual void enter_phase(Phase phase) = 0;
  /// Starts to bring the optimizer state from a slow medium into host memory, in Predict; does
  /// nothing where that has begun.
  virtual void begin_restore() = 0;
  /// Computes the mean loss of the batch's first `examples` at the current weights, forward only, in
  /// micro-batches as large as a step's. Leaves gradients as they are, except in Predict, where it
  /// frees those of a micro-correction. Blocks.
  virtual double wait_for_loss(const Batch& batch, std::int64_t examples) = 0;
  /// Computes forward and backward over all micro-batches and keeps the gradients; weights and
  /// moments stay, unless the settings leave it to apply_gradient alone to read a gradient: it may be
  /// done by then. Works in every phase; in Predict it allocates the gradients first. Blocks.
  virtual GradientMeasurement wait_for_gradient(const Batch& batch) = 0;
  /// Updates the weights by the (clipped) gradient of the last measurement at the schedule's current
  /// learning rate. Not in a Predict of forward passes, nor after a measurement that is not finite.
  virtual void apply_gradient() = 0;
  /// From now on learning rates are the schedule's times `factor`.
  virtual void scale_learning_rate(double factor) = 0;
  /// Floating-point operations of forward and backward over the batch, as the model counts them.
  virtual double step_flops(const Batch& batch) const = 0;
  /// Whether others take part in each step: what one meets alone, such as full memory, must not
  /// change what it does.
  virtual bool is_one_of_several() const = 0;
  virtual const Stream& stream() const = 0;
  /// What predictions compute with, and what undoes them.
  virtual WeightSpace& weights() = 0;
  virtual Rollback& rollback() = 0;
  /// What the configured method needs beyond these: an interface in its folder.
  virtual PendingWork& pending() = 0;
};

}  // namespace hybrid_trainer
