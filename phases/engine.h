#pragma once

#include <functional>
#include <memory>
#include <string>

#include "hybrid_trainer/core/state.h"
#include "hybrid_trainer/nn/parameter.h"
#include "hybrid_trainer/optim/speculative_optimizer.h"
#include "hybrid_trainer/phases/phase_config.h"
#include "hybrid_trainer/phases/trainable.h"
#include "src/distributed/ordered_sum.h"

namespace hybrid_trainer {

/// The sum of a step's gradients over this rank's own micro-batches: one f32 tensor in which the
/// weights follow one another.
class GradientSums {
 public:
  virtual ~GradientSums() = default;
  virtual Communicator& ranks() const = 0;
  /// From the next micro-batch on the sum concerns no other rank, or all of them again.
  virtual void keep_own(bool keeps) = 0;
  /// Takes the sum away; and sets another one, which is the weights' gradient from now on.
  virtual Tensor take() = 0;
  virtual void show(Tensor values) = 0;
  /// Forgets the sum.
  virtual void free() = 0;
  virtual std::int64_t elements() const = 0;  // of a sum
  /// Where a weight begins in a sum.
  virtual std::int64_t first_element(const Parameter& weight) const = 0;
  /// A weight's part of a sum; undefined where it has none.
  virtual Tensor part_of(const Tensor& sum, const Parameter& weight) const = 0;
  /// Where ranks have parts of the weights, those of this rank of such a sum, as part_of wants them.
  virtual Tensor own_parts_of(const Tensor& whole) const = 0;
  /// What ranks sum together, and who keeps what.
  virtual std::vector<SharedElements> shared_elements() const = 0;
};

/// What a training step gives to the device half of each method. The trainer implements it.
class Engine {
 public:
  virtual ~Engine() = default;
  virtual const Stream& stream() const = 0;
  /// What this rank updates of each trainable weight: all of it, or, where ranks have parts, its own.
  virtual const std::vector<Parameter*>& parameters() const = 0;
  virtual bool has_parts() const = 0;
  /// Makes compute copies again: the masters of parameters() have changed, on all ranks.
  virtual void publish_weights() = 0;
  /// Starts to gather the other ranks' updates where weights are whole. A collective.
  virtual void send_weights() = 0;
  virtual Optimizer& optimizer() = 0;
  /// The schedule's, of the step to come.
  virtual double learning_rate() const = 0;
  /// Those of as many steps as updates are delayed, from the `first` after the one to come on.
  virtual std::vector<float> rates_from(std::int64_t first) const = 0;
  /// Forward and backward of this rank's own micro-batches, whose sum is in sums(). If memory is
  /// short, only this rank halves them. Returns their mean loss, and the norm of what they add to the
  /// gradient of all ranks' mean. Blocks. Throws OutOfMemory.
  virtual GradientMeasurement wait_for_own_gradient(const Batch& batch) = 0;
  /// This rank's share of the micro-batches, from 0 to 1: of this batch's, and of the configured ones.
  virtual double own_share(const Batch& batch) const = 0;
  virtual double own_share() const = 0;
  /// Only where ranks have all of the state (DistributedConfig::zero at most 1).
  virtual GradientSums& sums() = 0;
  /// The optimizer's update by the last gradient, clipped.
  virtual void apply_gradient() = 0;
  /// A part of apply_gradient: leaves states and scales to the next batch. A collective.
  virtual void finish_batch() = 0;
  /// Factor of the gradient in the update: clipping and the scale of the loss.
  virtual float update_scale() const = 0;
};

/// The device half of a method: what it has pending in Predict beside the step. By default nothing.
/// What its phases call beyond that is an interface in the method's folder.
class PendingWork {
 public:
  virtual ~PendingWork() = default;
  /// The model has entered Predict.
  virtual void enter_predict() {}
  /// An update was made at once, by a gradient that was clipped by `scale`.
  virtual void observe_update(float /*scale*/) {}
  /// Ends what is pending without its updates, for weights and state that are about to be loaded.
  virtual void drop() {}
  /// Calls `use` while the exact weights are in place of predicted ones, which may be others on each
  /// rank; between two steps.
  virtual void with_exact(const std::function<void()>& use) { use(); }
  /// Where ranks have something pending: whether any had called this with true by the step that it is
  /// of, the same on all ranks. Else absent.
  virtual std::optional<bool> vote_to_stop(bool /*asks*/) { return {}; }
  /// Of an optimizer that updates beside the step, since the program began; else absent.
  virtual std::optional<SpeculationUse> use() const { return {}; }
  virtual void save(State&) const {}
  /// Weights and optimizer state have been loaded, and the model computes as it does in Predict if
  /// updates are delayed.
  virtual void load(const State&) {}
};

/// What a device half is made of; the engine outlives it.
struct PendingSetup {
  const PhaseConfig& phases;
  const OptimizerConfig& optimizer;
  Engine& engine;
  /// Receives one line where updates cannot be delayed.
  std::function<void(const std::string&)> tell;
};

/// That of the configured method. Throws OutOfMemory.
std::unique_ptr<PendingWork> make_pending_work(const PendingSetup& setup);

/// What a method's own optimizer is made of; all but the configs outlive it.
struct OptimizerSetup {
  const PhaseConfig& phases;
  const OptimizerConfig& optimizer;
  std::int64_t gradient_bits;  // memory.gradient_bits
  const std::vector<Parameter*>& parameters;
  const Stream& stream;
  const Stream& host;
  const Stream& home;  // of the state
};

/// The optimizer of a method that has one of its own; else null. Throws OutOfMemory.
std::unique_ptr<Optimizer> make_own_optimizer(const OptimizerSetup& setup);

}  // namespace hybrid_trainer
