#pragma once

#include <functional>
#include <memory>
#include <vector>

#include "hybrid_trainer/phases/trainable.h"
#include "src/trainer/sharding/leaf_gradients.h"
#include "src/trainer/step/gradient_path.h"
#include "src/trainer/step/step_scales.h"

namespace hybrid_trainer {

/// What one step computes: losses and gradients over its micro-batches, their norm, and the clipped
/// update, which comes with the gradients where HybridTrainerConfig::updates_at_once. Where
/// weights, gradients and optimizer state lie between the calls is its caller's to say.
class TrainingStep {
 public:
  /// All must outlive it. With `ranks` a batch is that of all ranks, of which each computes its own
  /// micro-batches; loss and gradient are those of all; each rank has what
  /// DistributedConfig::zero leaves it, which is a collective. Throws OutOfMemory, ConfigError:
  /// see check_ranks.
  TrainingStep(LossModel& model, const HybridTrainerConfig& config, const Stream& stream,
               MemoryPlaces& places, Communicator* ranks = nullptr);
  ~TrainingStep();
  TrainingStep(const TrainingStep&) = delete;
  TrainingStep& operator=(const TrainingStep&) = delete;

  /// The trainable ones, in visiting order.
  const std::vector<Parameter*>& weights() const { return weights_; }
  /// What this rank updates, predicts and saves of each: all of it, or a part of its own.
  const std::vector<Parameter*>& parameters() const {
    return parts_ ? parts_->parameters() : weights_;
  }
  /// This rank's parts of the weights; null where it has all of them.
  WeightParts* parts() const { return parts_.get(); }
  /// What the next batch's sequences begin with (data.carry_state), or null.
  RowStates* states() const { return pass_.states(); }
  Optimizer& optimizer() { return *optimizer_; }
  /// The optimizer where its exact state is not on the device, else null.
  SpeculativeOptimizer* speculation() const { return speculation_; }
  /// The sums of micro-batches. Only where ranks have all of the state (DistributedConfig::zero at
  /// most 1).
  OrderedGradients& ordered_gradients();
  LearningRates& rates() { return rates_; }
  const LearningRates& rates() const { return rates_; }
  const Stretches& stretches() const { return stretches_; }
  const Stream& stream() const { return stream_; }

  /// Activations and products, and the copies of weights that they read, are of this precision from
  /// now on. `records`: gradients may be recorded and replayed (training.cuda_graphs).
  void compute_in(const Precision& precision, bool records);
  /// Makes compute copies anew: the masters of parameters() have changed, on all ranks. Those of
  /// whole weights are made when they are used. Until send_weights or their use they are not what
  /// they should be.
  void publish_weights();
  /// Starts to gather the other ranks' updates where weights are whole. A collective.
  void send_weights();
  bool is_one_of_several() const { return retry_.is_one_of_several(); }
  /// Frees gradients, and what was recorded of them.
  void free_gradients();

  /// Steps done before the one to come, which the learning rate and dropout depend on.
  void set_steps_done(std::int64_t steps);
  /// Mean loss of the batch's first `examples`, forward only and without dropout; micro-batches
  /// halve as they do for the gradient. Blocks.
  double wait_for_loss(const Batch& batch, std::int64_t examples);
  /// Forward and backward over all micro-batches. Where memory is too small for one, it begins
  /// again with twice as many of half the size, which stay so. Blocks. Throws ShapeMismatch, and
  /// OutOfMemory where they cannot be halved, or weights are updated already.
  GradientMeasurement wait_for_gradient(const Batch& batch);
  /// Forward and backward of this rank's own micro-batches, whose sum is in ordered_gradients(). If
  /// memory is short, only this rank halves them. Returns their mean loss, and the norm of what they
  /// add to the gradient of all ranks' mean. Blocks. Throws OutOfMemory.
  GradientMeasurement wait_for_own_gradient(const Batch& batch);
  /// This rank's share of the batch's micro-batches, from 0 to 1.
  double own_share(const Batch& batch) {
    return path_->leaves()->own_share(micro_batches_.of(batch));
  }
  MicroBatches& micro_batches() { return micro_batches_; }
  const MicroBatches& micro_batches() const { return micro_batches_; }
  /// Is told after a call that halved the batch's micro-batches, of which there were `before`.
  void on_halving(std::function<void(const Batch& batch, std::int64_t before)> listener) {
    on_halving_ = std::move(listener);
  }
  /// Throws Diverged where the last step ended when some weights were updated and others not.
  void require_whole_update();
  /// The optimizer's update by the last gradient, clipped.
  void apply_gradient();
  /// A part of apply_gradient: what the last batch leaves to the next one, which are its states
  /// (data.carry_state) and the scales of what has few bits. A collective.
  void finish_batch();
  StepScales& scales() { return scales_; }
  const StepScales& scales() const { return scales_; }

 private:
  PendingGradient replay(const Batch& batch);
  StepRetry wait_for_ranks(const Batch& batch, const PendingGradient& pending, double& loss) const;
  void retry_alone(const Batch& batch, const OutOfMemory& error);
  double try_loss(const Batch& batch, std::int64_t examples, StepRetry& retry);
  void tell_if_halved(const Batch& batch, std::int64_t before) const;

  const HybridTrainerConfig config_;
  const Stretches stretches_;
  LearningRates rates_;
  MicroBatches micro_batches_;
  const Stream& stream_;
  std::vector<Parameter*> weights_;
  Communicator* ranks_;
  StepScales scales_;
  MicroBatchPass pass_;
  std::unique_ptr<WeightParts> parts_;
  MemoryRetry retry_;
  GradientRecording recording_;
  std::unique_ptr<Optimizer> optimizer_;
  SpeculativeOptimizer* const speculation_;  // the optimizer, if it is one
  std::unique_ptr<GradientPath> path_;
  std::function<void(const Batch&, std::int64_t)> on_halving_;
};

}  // namespace hybrid_trainer
