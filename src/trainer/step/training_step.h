#pragma once

#include "phases/engine.h"
#include "src/trainer/sharding/leaf_gradients.h"
#include "src/trainer/step/gradient_path.h"
#include "src/trainer/step/step_scales.h"

namespace hybrid_trainer {

/// What one step computes: losses and gradients over its micro-batches, their norm, and the clipped
/// update, which comes with the gradients where HybridTrainerConfig::updates_at_once. Where
/// weights, gradients and optimizer state lie between the calls is its caller's to say.
class TrainingStep final : public Engine {
 public:
  /// All must outlive it. With `ranks` a batch is that of all ranks, of which each computes its own
  /// micro-batches; loss and gradient are those of all; each rank has what
  /// DistributedConfig::zero leaves it, which is a collective. Throws OutOfMemory, ConfigError:
  /// see check_ranks.
  TrainingStep(LossModel& model, const HybridTrainerConfig& config, const Stream& stream,
               MemoryPlaces& places, Communicator* ranks = nullptr);
  ~TrainingStep() override;
  TrainingStep(const TrainingStep&) = delete;
  TrainingStep& operator=(const TrainingStep&) = delete;

  /// The trainable ones, in visiting order.
  const std::vector<Parameter*>& weights() const { return weights_; }
  /// This rank also predicts and saves these.
  const std::vector<Parameter*>& parameters() const override {
    return parts_ ? parts_->parameters() : weights_;
  }
  bool has_parts() const override { return parts_ != nullptr; }
  /// This rank's parts of the weights; null where it has all of them.
  WeightParts* parts() const { return parts_.get(); }
  /// What the next batch's sequences begin with (data.carry_state), or null.
  RowStates* states() const { return pass_.states(); }
  Optimizer& optimizer() override { return *optimizer_; }
  /// The optimizer where its exact state is not on the device, else null.
  SpeculativeOptimizer* speculation() const { return speculation_; }
  GradientSums& sums() override;
  LearningRates& rates() { return rates_; }
  const LearningRates& rates() const { return rates_; }
  double learning_rate() const override { return rates_.rate(); }
  std::vector<float> rates_from(std::int64_t first) const override {
    return rates_.rates_from(first);
  }
  const Stretches& stretches() const { return stretches_; }
  const Stream& stream() const override { return stream_; }

  /// Activations and products, and the copies of weights that they read, are of this precision from
  /// now on. `records`: gradients may be recorded and replayed (training.cuda_graphs).
  void compute_in(const Precision& precision, bool records);
  /// Those of whole weights are made when they are used. Until send_weights or their use they are not
  /// what they should be.
  void publish_weights() override;
  void send_weights() override;
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
  GradientMeasurement wait_for_own_gradient(const Batch& batch) override;
  double own_share(const Batch& batch) const override {
    return path_->leaves()->own_share(micro_batches_.of(batch));
  }
  double own_share() const override {
    return path_->leaves()->own_share(config_.gradient_accumulation.micro_batches);
  }
  MicroBatches& micro_batches() { return micro_batches_; }
  const MicroBatches& micro_batches() const { return micro_batches_; }
  /// Is told after a call that halved the batch's micro-batches, of which there were `before`.
  void on_halving(std::function<void(const Batch& batch, std::int64_t before)> listener) {
    on_halving_ = std::move(listener);
  }
  /// Throws Diverged where the last step ended when some weights were updated and others not.
  void require_whole_update();
  void apply_gradient() override;
  /// States of data.carry_state, and scales of numbers of few bits.
  void finish_batch() override;
  float update_scale() const override { return scales_.update_scale(); }
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
