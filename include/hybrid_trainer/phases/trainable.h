#pragma once

#include <cmath>
#include <optional>
#include <string>
#include <vector>

#include "hybrid_trainer/core/batch.h"
#include "hybrid_trainer/core/phase.h"
#include "hybrid_trainer/core/tensor.h"

namespace hybrid_trainer {

struct GradientMeasurement {
  double loss = 0;  // mean over the batch, at the weights where the gradient was taken
  double norm = 0;  // global L2 norm of the gradient before clipping
  bool finite() const { return std::isfinite(loss) && std::isfinite(norm); }
};

/// The exact update that arrived in a step.
struct LateUpdate {
  /// ‖predicted − exact‖/‖exact‖ of the updates under way that end with it; absent where none
  /// arrived.
  std::optional<double> prediction_error;
  std::string worst_weight;  // where it was largest
  bool is_late = false;      // else memory had no room, and the update was made at once
  std::int64_t lag = 0;      // updates under way while the step was computed
};

/// A step that this rank made by itself, and what the ranks told each other in it.
struct LocalStep {
  GradientMeasurement own;          // over its own micro-batches
  std::int64_t since_exchange = 0;  // steps since one began, this one among them
  /// Where an exchange arrived, of fragments the last one: steps of all ranks until it began, and those
  /// of them that made no update because something was not finite.
  std::int64_t steps = 0, skipped = 0;
};

/// The few things that a phase does to a model. The trainer implements it over a LossModel, an
/// Optimizer and the memory plan; tests implement it over a quadratic bowl.
///
/// Moments and counters change in apply_gradient, wait_for_late_update, wait_for_local_step and
/// wait_for_exact_weights alone, none of which is called between a snapshot and the decision on it,
/// so a rollback need not restore them.
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
  /// Forward only: mean loss of the batch at the current weights. Leaves gradients as they are,
  /// except in Predict, where it frees those of a micro-correction. Blocks.
  virtual double wait_for_loss(const Batch& batch) = 0;
  /// The same of a step's batch's first `examples`, in micro-batches as large as the step's.
  virtual double wait_for_loss_of(const Batch& batch, std::int64_t examples) = 0;
  /// Forward and backward over all micro-batches; keeps the gradients; weights and moments stay,
  /// unless the settings leave it to apply_gradient alone to read a gradient: it may be done by then.
  /// Works in every phase; in Predict it allocates the gradients first. Blocks.
  virtual GradientMeasurement wait_for_gradient(const Batch& batch) = 0;
  /// The optimizer's update with the (clipped) gradient of the last measurement and the schedule's
  /// current learning rate. Not in Predict on forward passes, nor after a measurement that is not
  /// finite.
  virtual void apply_gradient() = 0;
  /// In Predict where it goes on without the optimizer state: the update by the last measurement's
  /// gradient gets under way, and the weights become those predicted for the next step. Not
  /// `finite`: that gradient makes none. Blocks only where the update that is due has not arrived.
  /// Without other ranks: the update by the gradient that arrived is made.
  virtual LateUpdate wait_for_late_update(bool finite) = 0;
  /// In Predict without other ranks: forward and backward of this rank's own micro-batches, whose
  /// gradient gets under way to the others. Returns their mean loss. Blocks.
  virtual double wait_for_own_gradient(const Batch& batch) = 0;
  /// The gradient of all ranks of the step `lag` before the last one, or, of `all` that are under
  /// way, the oldest; absent where there is none. Blocks only where it has not arrived.
  virtual std::optional<GradientMeasurement> wait_for_late_gradient(bool all) = 0;
  /// The weights become those predicted for the next step from the gradients under way.
  virtual void predict_weights() = 0;
  /// In Predict where each rank trains on by itself for phases.local_steps steps: a step with an
  /// update of its own, which is skipped where it is not finite. Blocks; for other ranks only where
  /// an exchange is due and has not arrived.
  virtual LocalStep wait_for_local_step(const Batch& batch) = 0;
  /// All updates under way have arrived; the weights are the exact ones. Blocks. Without other ranks
  /// their gradients were waited for before; after local steps the ranks have one optimizer state
  /// again. Returns what they told each other meanwhile, of steps made by themselves.
  virtual LocalStep wait_for_exact_weights() = 0;
  /// A copy of a step's batch for as long as a prediction is not decided on. It lies where the
  /// snapshot does, so that a step on it finds as much device memory as any other. Blocks.
  virtual Batch keep_batch(const Batch& batch) = 0;
  /// Such a copy where a step can compute with it. Blocks.
  virtual Batch fetch_batch(const Batch& kept) = 0;
  /// Tensors that lie as the weights do, f32, one for each in a fixed order; not initialised.
  virtual std::vector<Tensor> empty_like_weights(MemoryKind kind) = 0;
  /// The same, for directions that only the calls below take: they may lie on the host.
  virtual std::vector<Tensor> empty_directions() = 0;
  /// direction = Σ factors·of, each as empty_like_weights or empty_directions makes it; `direction`
  /// may be the first of them.
  virtual void write_direction(const Tensor& direction, const std::vector<Tensor>& of,
                               const std::vector<float>& factors) = 0;
  /// to = the f32 masters.
  virtual void copy_weights(const std::vector<Tensor>& to) = 0;
  /// to = kept·to + added·masters, as empty_directions makes them; kept 0 does not read `to`.
  virtual void add_weights(const std::vector<Tensor>& to, float kept, float added) = 0;
  /// Inner product of two f32 tensors that lie as one of the weights does. Blocks.
  virtual double wait_for_dot(const Tensor& x, const Tensor& y) = 0;
  /// weights += length·directions, one tensor per weight (f32, shapes of the weights).
  virtual void move_along(const std::vector<Tensor>& directions, double length) = 0;
  /// Inner product of the last measurement's gradient with the directions, over all weights; a
  /// weight without a gradient adds nothing. Blocks.
  virtual double wait_for_slope(const std::vector<Tensor>& directions) = 0;
  /// What the optimizer would do next from its moments alone at the current learning rate, one
  /// tensor per weight. Needs the optimizer state on the device, so never called in Predict.
  virtual void write_momentum_directions(const std::vector<Tensor>& directions) = 0;
  /// Keeps a copy of the weights until drop_snapshot. While it exists, it is part of what the
  /// trainer saves, as weights and moments are.
  virtual void save_snapshot() = 0;
  /// The weights have jumped by length·directions, for good: an average of them goes along.
  virtual void follow(const std::vector<Tensor>& directions, double length) = 0;
  /// Writes the copy back bit for bit, any number of times.
  virtual void restore_snapshot() = 0;
  virtual void drop_snapshot() = 0;
  /// Until the next call, schedule and dropout act as `steps` steps before the current one, so that
  /// a replay of earlier batches is bit-identical to having trained on them then.
  virtual void rewind(std::int64_t steps) = 0;
  /// From now on learning rates are the schedule's times `factor`.
  virtual void scale_learning_rate(double factor) = 0;
  /// Floating-point operations of forward and backward over the batch, by the products of its
  /// weights alone.
  virtual double step_flops(const Batch& batch) const = 0;
  /// Whether others take part in each step: what one meets alone, such as full memory, must not
  /// change what it does.
  virtual bool is_one_of_several() const { return false; }
  virtual const Stream& stream() const = 0;
};

}  // namespace hybrid_trainer
