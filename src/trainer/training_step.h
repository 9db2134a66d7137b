#pragma once

#include <functional>
#include <memory>
#include <optional>
#include <vector>

#include "hybrid_trainer/distributed/single_communicator.h"
#include "hybrid_trainer/memory/consumed_gradients.h"
#include "hybrid_trainer/memory/stored_tape.h"
#include "hybrid_trainer/nn/gradient_sink.h"
#include "hybrid_trainer/nn/loss_model.h"
#include "hybrid_trainer/nn/rounded_gradients.h"
#include "hybrid_trainer/optim/optimizer.h"
#include "hybrid_trainer/optim/slow_nesterov.h"
#include "hybrid_trainer/optim/speculative_optimizer.h"
#include "hybrid_trainer/phases/trainable.h"
#include "hybrid_trainer/trainer/hybrid_trainer_config.h"
#include "src/sharding/leaf_gradients.h"
#include "src/sharding/weight_parts.h"
#include "src/trainer/gradient_recording.h"
#include "src/trainer/immediate_updates.h"
#include "src/trainer/stretches.h"

namespace hybrid_trainer {

class LateGradients;
class LocalSteps;

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
  /// The same; null where that is all.
  const WeightParts* parts() const { return parts_ ? &*parts_ : nullptr; }
  Optimizer& optimizer() { return *optimizer_; }
  /// The same where the exact state is not on the device, else null.
  SpeculativeOptimizer* speculation() const { return speculation_; }
  /// Gradients of other ranks that come late; null unless phases.ingredient is other_ranks.
  LateGradients* late_gradients() const { return late_gradients_.get(); }
  /// The same where phases.local_steps is above 0, in its place; else null.
  LocalSteps* local_steps() const { return local_steps_.get(); }
  /// The optimizer where it has slow momentum, else null.
  SlowNesterov* slow_momentum() const { return slow_momentum_; }

  /// Activations and products are of this dtype from now on, and so are the copies of the weights
  /// that they read. `records`: gradients may be recorded and replayed (training.cuda_graphs).
  void compute_in(DType dtype, bool records);
  /// The masters of parameters() have changed, on all ranks: compute copies are made anew, of whole
  /// weights when they are used. Until send_weights or their use these are not what they should be.
  void publish_weights();
  /// Other ranks' changes get under way to where weights are whole. A collective.
  void send_weights();
  bool is_one_of_several() const { return ranks_ != nullptr && ranks_->size() > 1; }
  void allocate_gradients();  // where they are kept
  void free_gradients();      // and what was recorded of them

  /// Steps done before the one to come, which the learning rate and dropout depend on.
  void set_steps_done(std::int64_t steps);
  double learning_rate() const;
  /// What the schedule's learning rates are multiplied by, 1 at first: by what was found, and after
  /// going back.
  void scale_learning_rate(double factor) { found_factor_ = factor; }
  void set_rate_factor(double factor) { rate_factor_ = factor; }
  /// Mean loss of the batch's first `examples`, forward only and without dropout; micro-batches
  /// halve as they do for the gradient. Blocks.
  double wait_for_loss(const Batch& batch, std::int64_t examples);
  /// Forward and backward over all micro-batches. Where memory is too small for one, it begins
  /// again with twice as many of half the size, which stay so. Blocks. Throws ShapeMismatch, and
  /// OutOfMemory where they cannot be halved, or weights are updated already.
  GradientMeasurement wait_for_gradient(const Batch& batch);
  /// The same of this rank's micro-batches alone, whose sum gets under way to the others; where this
  /// rank halves them, others do not. Returns their mean loss. Blocks. Throws OutOfMemory.
  double wait_for_own_gradient(const Batch& batch);
  /// See Trainable.
  LocalStep wait_for_local_step(const Batch& batch);
  /// Of a batch as large as any; of stretches' smaller ones, as many as are no larger than those.
  std::int64_t micro_batches() const { return micro_batches_; }
  std::int64_t micro_batches_of(const Batch& batch) const {
    return micro_batches_of(batch, own_factor_ * micro_batches_);
  }
  /// This rank alone has no more than others from now on.
  void set_micro_batches(std::int64_t count) {
    micro_batches_ = count;
    own_factor_ = 1;
  }
  /// Where ranks go on alone: whether each has the same examples where micro-batches are halved.
  bool shares_stay_where_halved() const {
    return (late_gradients_ || local_steps_) &&
           config_.gradient_accumulation.micro_batches % leaves_->ranks().size() == 0;
  }
  /// Throws Diverged where the last step ended when some weights were updated and others not.
  void require_whole_update() const;
  /// The optimizer's update by the last gradient, clipped.
  void apply_gradient();
  /// The same, late; learning rates of the L updates from the step to come on.
  ArrivedUpdate wait_for_late_update(bool finite);
  std::vector<float> rates_to_come() const { return rates_from(steps_done_); }
  /// What the optimizer would do next from its moments alone.
  void write_momentum_directions(const std::vector<Tensor>& directions);

 private:
  std::int64_t micro_batches_of(const Batch& batch, std::int64_t of_largest) const;
  PendingGradient enqueue_gradient(const Batch& batch, const Stream& stream);
  GradientMeasurement wait_for_own_part(const Batch& batch);
  PendingGradient enqueue_leaves(const Batch& batch, const Stream& stream);
  void enqueue_leaf(const Batch& batch, std::int64_t leaf, bool counts, PendingGradient& pending,
                    const Stream& stream);
  void begin_sinks();
  void enqueue_micro_batch(const Batch& part, std::int64_t index, std::int64_t parts,
                           PendingGradient& pending, const Stream& stream);
  void measure_gradients(PendingGradient& pending, const Stream& stream) const;
  Batch micro_batch(const Batch& batch, std::int64_t index) const;
  struct FittingGradient {
    PendingGradient pending;
    double loss;
  };
  FittingGradient wait_for_what_fits(const Batch& batch);
  PendingGradient enqueue_what_fits(const Batch& batch);
  double enqueue_and_wait_for_loss(const Batch& batch, std::int64_t examples, StepRetry& retry);
  /// What `compute(batch)` returns, in micro-batches that fit.
  template <class Compute>
  auto in_what_fits(const Batch& batch, const Compute& compute);
  void go_through(const Batch& part, const Batch& batch, StepRetry& retry,
                  const std::function<void(const Batch&)>& compute);
  StepRetry wait_for_way_out(const Batch& batch, const OutOfMemory& error);
  StepRetry wait_for_most_wanted(StepRetry here) const;
  std::optional<std::int64_t> halved(const Batch& batch) const;
  void begin_again(const Batch& batch, StepRetry retry);
  Pass pass(bool training, std::int64_t first_token) const;
  bool records() const;
  double wait_for_norm_of(const PendingGradient& pending);
  /// Of losses that are (1) f64 each; the last is of `last_share` as much. Blocks.
  double wait_for_mean_of(const std::vector<Tensor>& losses, double last_share = 1) const;
  /// Whether the micro-batches' gradients are summed as a tree.
  bool sums_leaves(std::int64_t micro_batches) const;
  GradientSink& sink() {
    if (immediate_) return *immediate_;
    if (consumes_) return consumed_;
    if (config_.memory.gradient_bits == 16) return rounded_;
    return gradients_;
  }
  void upload_step_number();
  std::unique_ptr<LeafGradients> make_leaf_gradients();
  std::unique_ptr<Optimizer> optimizer_of(const HybridTrainerConfig& config);
  double scheduled_rate(std::int64_t steps_done) const;
  double rate_at(std::int64_t steps_done) const;
  void say_slow_share();
  std::vector<float> rates_from(std::int64_t steps_done) const;

  LossModel& model_;
  HybridTrainerConfig config_;
  Stretches stretches_;
  const Stream& stream_;
  std::vector<Parameter*> weights_;
  MemoryPlaces& places_;
  Communicator* ranks_;
  std::optional<SingleCommunicator> alone_;
  std::optional<WeightParts> parts_;
  bool consumes_;
  ResidentGradients gradients_;
  ConsumedGradients consumed_;
  RoundedGradients rounded_;
  GradientRecording recording_;
  SpeculativeOptimizer* speculation_ = nullptr;  // the optimizer, if it is one
  SlowNesterov* slow_momentum_ = nullptr;
  std::unique_ptr<Optimizer> optimizer_;
  std::optional<ImmediateUpdates> immediate_;
  std::unique_ptr<LeafGradients> leaves_;
  std::unique_ptr<LateGradients> late_gradients_;
  std::unique_ptr<LocalSteps> local_steps_;
  Tensor step_words_;  // of Pass, where gradients are recorded
  Tensor host_step_words_;
  DType dtype_ = DType::kF32;
  bool may_record_ = false;
  double gradient_norm_ = 0;
  std::int64_t steps_done_ = 0;
  double found_factor_ = 1, rate_factor_ = 1;  // of the schedule's rates
  std::int64_t micro_batches_;
  std::int64_t own_factor_ = 1;  // as many times more, in what others do not wait for
};

}  // namespace hybrid_trainer
