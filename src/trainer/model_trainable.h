#pragma once

#include "hybrid_trainer/config/phase_precision.h"
#include "hybrid_trainer/core/phase.h"
#include "hybrid_trainer/core/state.h"
#include "hybrid_trainer/memory/memory_places.h"
#include "hybrid_trainer/memory/offload_strategy.h"
#include "hybrid_trainer/nn/network.h"
#include "hybrid_trainer/phases/trainable.h"
#include "memory/weight_copies.h"
#include "phases/engine.h"
#include "src/trainer/expert_routing.h"
#include "src/trainer/step/gradient_path.h"

namespace hybrid_trainer {

class ModelTrainable;

/// What a Predict of forward passes has no use for, off the device until it is used again: the
/// optimizer state (predict_aware_memory), and the masters.
class PredictOffload {
 public:
  using Tell = std::function<void(const std::string&)>;
  /// All must outlive it. `tell` receives one line where something stays on the device.
  PredictOffload(const HybridTrainerConfig& config, MemoryPlaces& places, ModelTrainable& model,
                 Tell tell);
  /// Whether Predict moves masters and directions to the host.
  bool empties_device() const { return empties_device_; }

  /// Predict begins. What was rounded already, and came back for a checkpoint, stays: rounded again
  /// it would differ from the state of a run that did not save. Of several ranks none may keep what
  /// others round: throws Error.
  void move_state_out();
  /// After the compute copies are made. Their memory may be reused at once: work is enqueued in
  /// stream order.
  void move_masters_out();
  /// Another phase begins.
  void end_predict();

  /// Starts to bring the state from a slow medium into host memory.
  void begin_restore() { strategy_->begin_restore(); }
  /// Frees what was copied out; from its first use of the device on, a phase other than Predict has
  /// the state on its way back.
  void begin_return(Phase phase);
  /// The state is on the device. Blocks.
  void wait_until_restored();
  /// Whether the state is gone for good (drop_and_reinitialize), and its counters begin anew.
  bool is_dropped() const {
    return strategy_->restored() == Restored::kZeros &&
           strategy_->whereabouts() != Whereabouts::kResident;
  }
  const OffloadUse& use() const { return strategy_->use(); }

  /// Brings back what a checkpoint saves. release_after_save offloads it again, unless its restore
  /// had begun or it was rounded.
  void prepare_save(State& state, Phase phase);
  void release_after_save();
  /// Brings the state back so that it can be loaded.
  void prepare_load(const State& state);

 private:
  ModelTrainable& model_;
  MemoryPlaces& places_;
  const Tell tell_;
  std::unique_ptr<OffloadStrategy> strategy_;  // of the optimizer state
  const bool empties_device_;
  Whereabouts before_save_ = Whereabouts::kResident;
  bool is_rounded_ = false;  // the state, by this Predict's offload
};

/// Copies a saved tensor. Blocks. Throws DataError where it has another shape.
void copy_saved(const Tensor& to, const State& state, const std::string& name,
                const Stream& stream);

/// A model's weights as predictions compute with them: this rank's parts, where ranks have parts.
class ModelWeights final : public WeightSpace {
 public:
  /// All must outlive it.
  ModelWeights(ModelTrainable& model, PredictOffload& offload, WeightAverage& average,
               MemoryPlaces& places);
  std::vector<Tensor> empty_like_weights(MemoryKind kind) override;
  std::vector<Tensor> empty_directions() override;
  void write_direction(const Tensor& direction, const std::vector<Tensor>& of,
                       const std::vector<float>& factors) override;
  void copy_weights(const std::vector<Tensor>& to) override;
  void add_weights(const std::vector<Tensor>& to, float kept, float added) override;
  double wait_for_dot(const Tensor& x, const Tensor& y) override;
  void move_along(const std::vector<Tensor>& directions, double length) override;
  double wait_for_slope(const std::vector<Tensor>& directions) override;
  void write_momentum_directions(const std::vector<Tensor>& directions) override;
  void follow(const std::vector<Tensor>& directions, double length) override;

  /// Adds the masters as "model.…" and the optimizer state as "optimizer.…", as views.
  void save(State& state) const;
  /// Loads what save saved. Throws DataError where it is of another model or optimizer.
  void load(const State& state);

 private:
  std::vector<Tensor> empty_tensors(MemoryKind kind, const Stream& where) const;
  double wait_for_scaled_slope(const std::vector<Tensor>& directions) const;
  void load_optimizer(const State& state);
  ModelTrainable& model_;
  PredictOffload& offload_;
  WeightAverage& average_;
  MemoryPlaces& places_;
  const Stream& stream_;
};

/// A model's snapshot and the batches of a prediction, where memory overflows to.
class ModelRollback final : public Rollback {
 public:
  /// All must outlive it.
  ModelRollback(ModelTrainable& model, MemoryPlaces& places);
  void save_snapshot() override;
  void restore_snapshot() override;
  void drop_snapshot() override { snapshot_.drop(); }
  Batch keep_batch(const Batch& batch) override;
  Batch fetch_batch(const Batch& kept) override;
  void rewind(std::int64_t steps) override;

  /// Saves the snapshot if there is one, as views; and loads it. Throws DataError.
  void save(State& state) const;
  void load(const State& state);

 private:
  ModelTrainable& model_;
  MemoryPlaces& places_;
  const Stream& stream_;
  WeightSnapshot snapshot_;
};

/// A LossModel as the phase machine and the methods see it. Computes losses and gradients over
/// micro-batches in each phase's precision, and the clipped update, which comes with the gradients
/// where HybridTrainerConfig::updates_at_once; and says what lies in device memory meanwhile.
class ModelTrainable final : public Trainable, public Engine {
 public:
  using Tell = std::function<void(const std::string&)>;
  /// `model`, which moves to where memory.weights says, and `stream` must outlive it; the snapshot
  /// and what is offloaded go to the places' host memory. `ranks`: see HybridTrainer; each has what
  /// DistributedConfig::zero leaves it. `tell` receives one line for the user when something asked
  /// for could not be done. Throws OutOfMemory; ConfigError, also see check_ranks.
  ModelTrainable(LossModel& model, const HybridTrainerConfig& config, const Stream& stream,
                 std::shared_ptr<MemoryPlaces> places, Tell tell, Communicator* ranks = nullptr);
  /// Makes places of its own around the host pool.
  ModelTrainable(LossModel& model, const HybridTrainerConfig& config, const Stream& stream,
                 std::shared_ptr<MemoryPool> host_pool, Tell tell)
      : ModelTrainable(model, config, stream,
                       std::make_shared<MemoryPlaces>(config.memory, stream, std::move(host_pool)),
                       std::move(tell)) {}
  ModelTrainable(const ModelTrainable&) = delete;
  ModelTrainable& operator=(const ModelTrainable&) = delete;

  // What the phases call.
  void enter_phase(Phase phase) override;
  void begin_restore() override { offload_.begin_restore(); }
  double wait_for_loss(const Batch& batch, std::int64_t examples) override;
  /// Where memory is too small for a micro-batch, it begins again with twice as many of half the
  /// size, which stay so. Throws ShapeMismatch, and OutOfMemory where they cannot be halved, or
  /// weights are updated already.
  GradientMeasurement wait_for_gradient(const Batch& batch) override;
  void apply_gradient() override;
  void scale_learning_rate(double factor) override { rates_.set_found_factor(factor); }
  double step_flops(const Batch& batch) const override { return model_.step_flops(batch); }
  bool is_one_of_several() const override { return retry_.is_one_of_several(); }
  const Stream& stream() const override { return stream_; }
  WeightSpace& weights() override { return weights_; }
  Rollback& rollback() override { return rollback_; }
  PendingWork& pending() override { return *pending_; }

  // What the device half of a method calls, too.
  const std::vector<Parameter*>& parameters() const override {
    return parts_ ? parts_->parameters() : trained_weights_;
  }
  bool has_parts() const override { return parts_ != nullptr; }
  /// Compute copies of whole weights are made when they are used. Until send_weights or their use
  /// they are not what they should be.
  void publish_weights() override;
  void send_weights() override {
    if (parts_) parts_->send_changes();
  }
  Optimizer& optimizer() override { return *optimizer_; }
  double learning_rate() const override { return rates_.rate(); }
  std::vector<float> rates_from(std::int64_t first) const override {
    return rates_.rates_from(first);
  }
  GradientMeasurement wait_for_own_gradient(const Batch& batch) override;
  double own_share(const Batch& batch) const override {
    return path_->leaves()->own_share(micro_batches_.of(batch));
  }
  double own_share() const override {
    return path_->leaves()->own_share(config_.gradient_accumulation.micro_batches);
  }
  GradientSums& sums() override;
  /// States of data.carry_state, and scales of numbers of few bits.
  void finish_batch() override;
  float update_scale() const override { return scales_.update_scale(); }

  // The parts, for the trainer and each other.
  LossModel& model() { return model_; }
  /// All trainable weights, in visiting order; parameters() has this rank's parts of them.
  const std::vector<Parameter*>& trained_weights() const { return trained_weights_; }
  /// This rank's parts of the weights; null where it has all of them.
  const WeightParts* parts() const { return parts_.get(); }
  LearningRates& rates() { return rates_; }
  const MicroBatches& micro_batches() const { return micro_batches_; }
  const StepScales& scales() const { return scales_; }
  /// The optimizer state in Predict.
  const PredictOffload& offload() const { return offload_; }
  const PhasePrecision& precision() const { return precision_; }
  const Stretches& stretches() const { return stretches_; }

  /// Steps done in all phases, which the schedule and dropout depend on.
  void set_steps_done(std::int64_t steps);
  /// See Rollback.
  void rewind(std::int64_t steps);
  /// Activations and products, and the copies of weights that they read, are of this precision from
  /// now on. `records`: gradients may be recorded and replayed (training.cuda_graphs).
  void compute_in(const Precision& precision, bool records);
  /// See move_selection_biases; to be called once a step.
  void balance_experts() { move_selection_biases(model_, ranks_, stream_); }
  /// Weights and their mean change places; see WeightAverage.
  void exchange_average();
  /// Calls `read_out` while the weights are their mean, if there is one (training.average_weights).
  void with_average(const std::function<void()>& read_out);

  /// What the device took until the phase was entered, if one was since the last call; the pool's
  /// peaks begin anew after it. To be called once a step.
  std::optional<MemoryUse> take_border() { return std::exchange(border_, {}); }

  /// Saves weights, optimizer state and the snapshot if there is one, as views. Restores offloaded
  /// state first; release_after_save offloads it again. Throws Diverged where a step ended when some
  /// weights were updated and others not.
  void save(State& state);
  void release_after_save() { offload_.release_after_save(); }
  /// Loads what save wrote, also between two steps of another phase, but for a Predict of forward
  /// passes. Throws DataError if the state is another model's.
  void load(const State& state);

 private:
  void go_to_step();
  Precision wanted_precision() const;
  void compute(bool records) { compute_in(*(chosen_ = wanted_precision()), records); }
  void free_gradients();
  PendingGradient replay(const Batch& batch);
  StepRetry wait_for_ranks(const Batch& batch, const PendingGradient& pending, double& loss) const;
  void retry_alone(const Batch& batch, const OutOfMemory& error);
  double try_loss(const Batch& batch, std::int64_t examples, StepRetry& retry);
  void tell_if_halved(const Batch& batch, std::int64_t before) const;

  LossModel& model_;
  const Stream& stream_;
  Communicator* const ranks_;
  const HybridTrainerConfig config_;
  const std::shared_ptr<MemoryPlaces> places_;
  const Tell tell_;

  // A step: loss, gradient, update.
  const Stretches stretches_;
  LearningRates rates_;
  MicroBatches micro_batches_;
  const std::vector<Parameter*> trained_weights_;
  StepScales scales_;
  MicroBatchPass pass_;
  const std::unique_ptr<WeightParts> parts_;
  MemoryRetry retry_;
  GradientRecording recording_;
  const std::unique_ptr<Optimizer> optimizer_;
  const std::unique_ptr<GradientPath> path_;

  // Which step of which phase it is at: schedule, dropout and precision follow from it.
  PhasePrecision precision_;
  std::optional<Precision> chosen_{};  // that the step computes in, once a phase was entered
  Phase phase_ = Phase::kWarmup;
  std::int64_t steps_done_ = 0, rewound_ = 0;

  // What else it keeps.
  PredictOffload offload_;
  ModelRollback rollback_;
  WeightAverage average_;
  RouterCopies routers_;
  ModelWeights weights_;
  std::unique_ptr<PendingWork> pending_;
  std::optional<MemoryUse> border_;
};

}  // namespace hybrid_trainer
