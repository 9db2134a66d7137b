#pragma once

#include "hybrid_trainer/config/phase_precision.h"
#include "hybrid_trainer/memory/offload_strategy.h"
#include "memory/weight_copies.h"
#include "src/trainer/expert_routing.h"
#include "src/trainer/step/gradient_path.h"

namespace hybrid_trainer {

class ModelTrainable;

/// Offloads optimizer state (predict_aware_memory) and master weights in a forward-only Predict.
class PredictOffload {
 public:
  using MessageCallback = std::function<void(const std::string&)>;
  /// `report` receives a message if a tensor stays on the device.
  PredictOffload(const HybridTrainerConfig& config, MemoryPlaces& places, ModelTrainable& model,
                 MessageCallback report);
  bool empties_device() const { return empties_device_; }

  /// Offloads the optimizer state when Predict begins. State that was rounded and then restored for
  /// a checkpoint stays on the device, because rounding it again would change results compared with
  /// a run that did not save. Throws Error if this rank would keep state that other ranks round.
  void move_state_out();
  /// Offloads the master weights in stream order. Make the compute copies first.
  void move_masters_out();
  /// Restores the master weights. Call it when a phase other than Predict begins.
  void end_predict();

  void begin_restore() { strategy_->begin_restore(); }  // reads the state into host memory
  /// Frees the memory of finished copies and, except in Predict, starts to restore the state.
  void begin_return(Phase phase);
  void wait_until_restored();
  /// Returns whether the state is lost (drop_and_reinitialize), so that its counters restart.
  bool is_dropped() const {
    return strategy_->restored() == Restored::kZeros &&
           strategy_->location() != Location::kResident;
  }
  const OffloadUse& use() const { return strategy_->use(); }

  /// Restores the state for a checkpoint, except in Predict if it is dropped. release_after_save
  /// offloads it again, unless its restore had begun or it was rounded.
  void prepare_save(State& state, Phase phase);
  void release_after_save();
  /// Restores the state so that it can be loaded.
  void prepare_load(const State& state);

 private:
  ModelTrainable& model_;
  MemoryPlaces& places_;
  const MessageCallback report_;
  std::unique_ptr<OffloadStrategy> strategy_;  // offloads the optimizer state
  const bool empties_device_;
  Location before_save_ = Location::kResident;
  bool is_rounded_ = false;  // whether the offload of this Predict has rounded the state
};

/// Copies a saved tensor. Blocks. Throws DataError if its shape differs.
void copy_saved(const Tensor& to, const State& state, const std::string& name,
                const Stream& stream);

/// The weights of a model that predictions move: this rank's shards if weights are sharded.
class ModelWeights final : public WeightSpace {
 public:
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

  /// Saves views of the master weights as "model.…" and of the optimizer state as "optimizer.…".
  void save(State& state) const;
  void load(const State& state);  // throws DataError if the state belongs to another model

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

/// A model's snapshot and the batches of a prediction, stored at DeviceMap::overflow.
class ModelRollback final : public Rollback {
 public:
  ModelRollback(ModelTrainable& model, MemoryPlaces& places);
  void save_snapshot() override;
  void restore_snapshot() override;
  void drop_snapshot() override { snapshot_.drop(); }
  Batch keep_batch(const Batch& batch) override;
  Batch fetch_batch(const Batch& kept) override;
  void rewind(std::int64_t steps) override;

  /// Save and load the snapshot, if any. Saved tensors are views. load throws DataError.
  void save(State& state) const;
  void load(const State& state);

 private:
  ModelTrainable& model_;
  MemoryPlaces& places_;
  const Stream& stream_;
  WeightSnapshot snapshot_;
};

/// Adapts a LossModel to the phase machine and the methods. Computes losses and gradients over
/// micro-batches in each phase's precision, updates the weights, and manages device memory.
class ModelTrainable final : public Trainable, public Engine {
 public:
  using MessageCallback = std::function<void(const std::string&)>;
  /// Moves `model` to memory.weights. `model` and `stream` must outlive this object. The snapshot
  /// and offloaded data use the host memory of `places`. `ranks`: see HybridTrainer; weights are
  /// sharded according to DistributedConfig::zero. `report` receives messages about settings that
  /// could not be applied. Throws OutOfMemory, ConfigError (see check_ranks).
  ModelTrainable(LossModel& model, const HybridTrainerConfig& config, const Stream& stream,
                 std::shared_ptr<MemoryPlaces> places, MessageCallback report,
                 Communicator* ranks = nullptr);
  /// Makes its own MemoryPlaces with this host pool.
  ModelTrainable(LossModel& model, const HybridTrainerConfig& config, const Stream& stream,
                 std::shared_ptr<MemoryPool> host_pool, MessageCallback report)
      : ModelTrainable(model, config, stream,
                       std::make_shared<MemoryPlaces>(config.memory, stream, std::move(host_pool)),
                       std::move(report)) {}
  ModelTrainable(const ModelTrainable&) = delete;
  ModelTrainable& operator=(const ModelTrainable&) = delete;

  // Called by the phases.
  void enter_phase(Phase phase) override;
  void begin_restore() override { offload_.begin_restore(); }
  double wait_for_loss(const Batch& batch, std::int64_t examples) override;
  /// If memory is too small for a micro-batch, restarts the step with twice as many micro-batches
  /// of half the size, and keeps this number. Throws ShapeMismatch. Throws OutOfMemory if
  /// micro-batches cannot be halved or weights are already updated.
  GradientMeasurement wait_for_gradient(const Batch& batch) override;
  void apply_gradient() override;
  void scale_learning_rate(double factor) override { rates_.set_found_factor(factor); }
  double step_flops(const Batch& batch) const override { return model_.step_flops(batch); }
  bool is_distributed() const override { return retry_.is_distributed(); }
  const Stream& stream() const override { return stream_; }
  WeightSpace& weights() override { return weights_; }
  Rollback& rollback() override { return rollback_; }
  PendingWork& pending() override { return *pending_; }

  // Also called by PendingWork.
  const std::vector<Parameter*>& parameters() const override {
    return parts_ ? parts_->parameters() : trained_weights_;
  }
  bool has_parts() const override { return parts_ != nullptr; }
  /// Refreshes compute copies. Copies of replicated weights wait until send_weights or their use.
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
  /// Advances the states of data.carry_state and low-precision scales.
  void finish_batch() override;
  float update_scale() const override { return scales_.update_scale(); }

  // Parts, for the trainer and each other.
  LossModel& model() { return model_; }
  /// Returns all trainable weights in visiting order; parameters() returns only this rank's parts.
  const std::vector<Parameter*>& trained_weights() const { return trained_weights_; }
  const WeightParts* parts() const { return parts_.get(); }  // null if weights are replicated
  LearningRates& rates() { return rates_; }
  const MicroBatches& micro_batches() const { return micro_batches_; }
  const StepScales& scales() const { return scales_; }
  const PredictOffload& offload() const { return offload_; }
  const PhasePrecision& precision() const { return precision_; }
  const Stages& stages() const { return stages_; }

  /// Sets the number of completed steps, on which the schedule and dropout depend.
  void set_steps_done(std::int64_t steps);
  void rewind(std::int64_t steps);
  /// Sets the precision of activations, products and the weight copies that they read. `records`:
  /// gradients may be recorded and replayed (training.cuda_graphs).
  void compute_in(const Precision& precision, bool records);
  /// Calls move_selection_biases; must be called once per step.
  void balance_experts() { move_selection_biases(model_, ranks_, stream_); }
  /// Swaps the weights with their mean; see WeightAverage.
  void exchange_average();
  /// Calls `callback` with the weights replaced by their mean, if any (training.average_weights).
  void with_average(const std::function<void()>& callback);

  /// Returns the device memory use until the end of the phase transition, if one has occurred since
  /// the last call. The pool's peaks restart at the end of a transition. Call it once per step.
  std::optional<MemoryUse> take_phase_entry_use() { return std::exchange(phase_entry_use_, {}); }

  /// Saves weights, optimizer state and snapshot, if there is one, as views. Restores offloaded
  /// state first; release_after_save offloads it again. Throws Diverged if a step has updated only
  /// some weights.
  void save(State& state);
  void release_after_save() { offload_.release_after_save(); }
  /// Loads a saved state, except during a forward-only Predict. Throws DataError for another model.
  void load(const State& state);

 private:
  void go_to_step();
  Precision wanted_precision() const;
  void compute(bool records) { compute_in(*(chosen_ = wanted_precision()), records); }
  void free_gradients();
  PendingGradient replay(const Batch& batch);
  StepRetry wait_for_ranks(const Batch& batch, const PendingGradient& pending, double& loss) const;
  void retry_locally(const Batch& batch, const OutOfMemory& error);
  double try_loss(const Batch& batch, std::int64_t examples, StepRetry& retry);
  double wait_for_comparison(const TextHead& head, const std::vector<Tensor>& parts,
                             const Batch& batch) const;
  void report_if_halved(const Batch& batch, std::int64_t before) const;

  LossModel& model_;
  const Stream& stream_;
  Communicator* const ranks_;
  const HybridTrainerConfig config_;
  const std::shared_ptr<MemoryPlaces> places_;
  const MessageCallback report_;

  // A step: loss, gradient, update.
  const Stages stages_;
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

  // Current phase and step, which determine schedule, dropout and precision.
  PhasePrecision precision_;
  std::optional<Precision> chosen_{};  // precision of the step; set once a phase was entered
  Phase phase_ = Phase::kWarmup;
  std::int64_t steps_done_ = 0, rewound_ = 0;

  PredictOffload offload_;
  ModelRollback rollback_;
  WeightAverage average_;
  RouterCopies routers_;
  ModelWeights weights_;
  std::unique_ptr<PendingWork> pending_;
  std::optional<MemoryUse> phase_entry_use_;
};

}  // namespace hybrid_trainer
