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

/// Sum of a step's gradients over this rank's micro-batches: one f32 tensor of all weights.
class GradientSums {
 public:
  virtual ~GradientSums() = default;
  virtual Communicator& ranks() const = 0;
  /// Sets whether the sum stays on this rank from the next micro-batch on.
  virtual void keep_local(bool keeps) = 0;
  /// Moves the sum out of this object. show makes another tensor the gradient of the weights.
  virtual Tensor take() = 0;
  virtual void show(Tensor values) = 0;
  virtual void free() = 0;
  virtual std::int64_t elements() const = 0;  // of a sum
  /// Returns the offset of a weight in a sum.
  virtual std::int64_t first_element(const Parameter& weight) const = 0;
  /// Returns the elements of a sum that belong to a weight; undefined if the sum has none.
  virtual Tensor part_of(const Tensor& sum, const Parameter& weight) const = 0;
  /// Returns this rank's shards of a whole sum, in the layout of part_of.
  virtual Tensor own_parts_of(const Tensor& whole) const = 0;
  /// Returns the elements that ranks sum together, and their owners.
  virtual std::vector<SharedElements> shared_elements() const = 0;
};

/// Operations of a training step that PendingWork uses. The trainer implements them.
class Engine {
 public:
  virtual ~Engine() = default;
  virtual const Stream& stream() const = 0;
  /// Returns the parameters that this rank updates: all trainable weights, or its shards of them.
  virtual const std::vector<Parameter*>& parameters() const = 0;
  virtual bool has_parts() const = 0;
  /// Refreshes compute copies after the master weights of parameters() have changed on all ranks.
  virtual void publish_weights() = 0;
  /// Starts gathering the other ranks' weight updates. Collective.
  virtual void send_weights() = 0;
  virtual Optimizer& optimizer() = 0;
  /// Returns the scheduled rate of the next step.
  virtual double learning_rate() const = 0;
  /// Returns one rate per step of delay, for consecutive steps from `first` steps after the next.
  virtual std::vector<float> rates_from(std::int64_t first) const = 0;
  /// Computes forward and backward of this rank's micro-batches, and the sum of their gradients in
  /// sums(). If memory is short, halves micro-batches on this rank only. Returns their mean loss,
  /// and the norm of their contribution to the gradient over all ranks. Blocks. Throws OutOfMemory.
  virtual GradientMeasurement wait_for_own_gradient(const Batch& batch) = 0;
  /// Returns the share of the batch's micro-batches that this rank computes, 0 to 1. Without a
  /// batch, it applies to the configured number of micro-batches.
  virtual double own_share(const Batch& batch) const = 0;
  virtual double own_share() const = 0;
  /// Requires a replicated optimizer state (DistributedConfig::zero at most 1).
  virtual GradientSums& sums() = 0;
  /// Updates the weights by the last gradient, clipped.
  virtual void apply_gradient() = 0;
  /// Advances recurrent states and scales to the next batch. apply_gradient calls it. Collective.
  virtual void finish_batch() = 0;
  /// Returns the factor of the gradient in the update, which includes clipping and the loss scale.
  virtual float update_scale() const = 0;
};

/// Pending work of a method during Predict. The base class has none. Further operations that only
/// one method needs are declared by an interface in its folder.
class PendingWork {
 public:
  virtual ~PendingWork() = default;
  /// Called after the model has entered Predict.
  virtual void enter_predict() {}
  /// Called after a synchronous update whose gradient was clipped by `scale`.
  virtual void observe_update(float /*scale*/) {}
  /// Discards pending work, before weights and state are loaded.
  virtual void drop() {}
  /// Calls `use` with exact weights in place of predicted ones. Call it between two steps.
  virtual void with_exact(const std::function<void()>& use) { use(); }
  /// Sends the vote `asks` with this rank's next message. Returns, equally on all ranks, whether
  /// any vote to stop has arrived. Returns none, without a vote, if no message is pending.
  virtual std::optional<bool> vote_to_stop(bool /*asks*/) { return {}; }
  /// Returns statistics of an asynchronous optimizer since the program began, if there is one.
  virtual std::optional<SpeculationUse> use() const { return {}; }
  virtual void save(State&) const {}
  /// Resumes pending work after loading. With delayed updates, requires Predict's precision.
  virtual void load(const State&) {}
};

/// Inputs of make_pending_work. The engine must outlive the result.
struct PendingSetup {
  const PhaseConfig& phases;
  const OptimizerConfig& optimizer;
  Engine& engine;
  /// Receives a warning if updates cannot be delayed.
  std::function<void(const std::string&)> report;
};

/// Makes the pending work of the configured method. Throws OutOfMemory.
std::unique_ptr<PendingWork> make_pending_work(const PendingSetup& setup);

/// Inputs of make_own_optimizer. All except the configs must outlive the optimizer.
struct OptimizerSetup {
  const PhaseConfig& phases;
  const OptimizerConfig& optimizer;
  std::int64_t gradient_bits;  // memory.gradient_bits
  const std::vector<Parameter*>& parameters;
  const Stream& stream;
  const Stream& host;
  const Stream& home;  // of the state
};

/// Makes the method's own optimizer, or returns null if it has none. Throws OutOfMemory.
std::unique_ptr<Optimizer> make_own_optimizer(const OptimizerSetup& setup);

}  // namespace hybrid_trainer
