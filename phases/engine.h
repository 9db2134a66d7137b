#pragma once

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
  /// `take` moves the sum out of this object. `show` makes another tensor the gradient of the
  /// weights.
  virtual Tensor take() = 0;
  virtual void show(Tensor values) = 0;
  virtual void free() = 0;
  virtual std::int64_t elements() const = 0;  // number of elements of a sum
  virtual std::int64_t first_element(const Parameter& weight) const = 0;
  /// Returns the elements of a sum that belong to a weight, or an undefined tensor if the sum has
  /// none.
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
  virtual double learning_rate() const = 0;
  /// Returns one learning rate per step of the delay, beginning `first` steps after the next step.
  virtual std::vector<float> rates_from(std::int64_t first) const = 0;
  /// Runs forward and backward of this rank's micro-batches and sums their gradients in sums().
  /// Returns their mean loss and the norm of their contribution to the gradient of all ranks. If
  /// memory is short, halves only this rank's micro-batches. Blocks. Throws OutOfMemory.
  virtual GradientMeasurement wait_for_own_gradient(const Batch& batch) = 0;
  /// Returns the share of the batch's micro-batches that this rank computes, from 0 to 1.
  virtual double own_share(const Batch& batch) const = 0;
  virtual double own_share() const = 0;
  /// Returns the sums of gradients. Requires DistributedConfig::zero of at most 1.
  virtual GradientSums& sums() = 0;
  virtual void apply_gradient() = 0;
  /// Advances recurrent states and low-precision scales. apply_gradient calls it. Collective.
  virtual void finish_batch() = 0;
  /// Returns the factor of the gradient in the update, which includes clipping and the loss scale.
  virtual float update_scale() const = 0;
};

/// Pending work of a method during Predict. The base class has none.
class PendingWork {
 public:
  virtual ~PendingWork() = default;
  virtual void enter_predict() {}
  /// Called after a synchronous update whose gradient was clipped by `scale`.
  virtual void observe_update(float /*scale*/) {}
  /// Discards pending work, before weights and state are loaded.
  virtual void drop() {}
  /// Calls `use` while the model has exact instead of predicted weights. Call it between two steps.
  virtual void with_exact(const std::function<void()>& use) { use(); }
  /// Sends the vote `asks` with this rank's next message. Returns whether a vote to stop has
  /// arrived from any rank; the result is equal on all ranks. If no message is pending, does not
  /// vote and returns nullopt.
  virtual std::optional<bool> vote_to_stop(bool /*asks*/) { return {}; }
  /// Returns statistics of an asynchronous optimizer since the program began, if there is one.
  virtual std::optional<SpeculationUse> use() const { return {}; }
  virtual void save(State&) const {}
  /// Resumes pending work. Delayed updates require the precision of Predict.
  virtual void load(const State&) {}
};

/// Inputs of make_pending_work. The engine must outlive the result.
struct PendingSetup {
  const PhaseConfig& phases;
  const OptimizerConfig& optimizer;
  Engine& engine;
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
  const Stream& home;  // location of the state
};

/// Makes the method's own optimizer, or returns null if it has none. Throws OutOfMemory.
std::unique_ptr<Optimizer> make_own_optimizer(const OptimizerSetup& setup);

}  // namespace hybrid_trainer
