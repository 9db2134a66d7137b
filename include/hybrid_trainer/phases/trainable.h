#pragma once

#include <cstdint>

#include "hybrid_trainer/core/batch.h"
#include "hybrid_trainer/core/phase.h"
#include "hybrid_trainer/core/stream.h"
#include "hybrid_trainer/phases/gradient_measurement.h"
#include "hybrid_trainer/phases/method_support.h"
#include "hybrid_trainer/phases/rollback.h"
#include "hybrid_trainer/phases/weight_space.h"

namespace hybrid_trainer {

/// The few things that every phase does to a model. The trainer implements it over a LossModel, an
/// Optimizer and the memory plan; tests implement it over a quadratic bowl.
///
/// Moments and counters change only in apply_gradient and in the calls of support(). None of these is
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
  /// What the configured method needs beyond these.
  virtual MethodSupport support() = 0;
};

}  // namespace hybrid_trainer
