#pragma once

#include "hybrid_trainer/config/phase_precision.h"
#include "hybrid_trainer/core/phase.h"
#include "hybrid_trainer/core/state.h"
#include "hybrid_trainer/memory/memory_places.h"
#include "hybrid_trainer/memory/offload_strategy.h"
#include "hybrid_trainer/nn/network.h"
#include "hybrid_trainer/phases/trainable.h"
#include "memory/weight_copies.h"
#include "src/trainer/expert_routing.h"
#include "src/trainer/step/micro_batches.h"
#include "src/trainer/step/training_step.h"

namespace hybrid_trainer {

/// How many micro-batches memory wants in each phase: at first the config's, twice as many from each
/// time on that memory was too small in that phase.
class PhaseMicroBatches {
 public:
  /// `step`, which has those of the phase entered last, must outlive it.
  PhaseMicroBatches(const HybridTrainerConfig& config, MicroBatches& step);
  /// The step has those of this phase from now on.
  void enter(Phase phase);
  /// Saves them. Where a rank has halved its own alone, it goes on as a resumed run does, which does
  /// not know.
  void save(State& state);
  /// Loads a checkpoint's, so that bits do not depend on when a run was stopped. Where the budget has
  /// grown since, each phase tries the config's again, and `tell` receives one line; a number that
  /// was found without a budget stays, as what other programs take of the memory decides nothing.
  void load(const State& state, const std::function<void(const std::string&)>& tell);

 private:
  const std::int64_t of_config_;
  const std::size_t budget_bytes_;  // of the device; 0: none
  MicroBatches& step_;
  Phase phase_ = Phase::kWarmup;
  std::array<std::int64_t, kPhases> counts_{};  // by phase, but for the one entered last
};

/// Which step of which phase a model is at: schedule, dropout and precision follow from it.
class PhasePosition {
 public:
  /// `step` must outlive it.
  PhasePosition(const HybridTrainerConfig& config, std::int64_t width, TrainingStep& step);
  Phase phase() const { return phase_; }
  void set_phase(Phase phase) { phase_ = phase; }
  /// The step computes in the phase's precision from now on. `records`: see TrainingStep.
  void compute(bool records);
  /// Steps done in all phases.
  void set_steps_done(std::int64_t steps);
  /// See Rollback.
  void rewind(std::int64_t steps);
  const PhasePrecision& precision() const { return precision_; }
  PhasePrecision& precision() { return precision_; }

 private:
  Precision wanted() const;
  void go_to_step();

  TrainingStep& step_;
  PhasePrecision precision_;
  const Device device_;
  std::optional<Precision> chosen_{};  // that the step computes in, once a phase was entered
  Phase phase_ = Phase::kWarmup;
  std::int64_t steps_done_ = 0, rewound_ = 0;
};

/// What a Predict of forward passes has no use for, off the device until it is used again: the
/// optimizer state (predict_aware_memory), and the masters.
class PredictOffload {
 public:
  using Tell = std::function<void(const std::string&)>;
  /// All must outlive it. `tell` receives one line where something stays on the device.
  PredictOffload(const HybridTrainerConfig& config, MemoryPlaces& places, TrainingStep& step,
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
  TrainingStep& step_;
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

/// Adds the masters as "model.…" and the optimizer state as "optimizer.…", as views. `is_dropped`:
/// the optimizer's counter begins anew.
void save_weights(State& state, TrainingStep& step, bool is_dropped);
/// Loads what save_weights saved. Throws DataError where it is of another model or optimizer.
void load_weights(const State& state, TrainingStep& step);

/// A model's weights as predictions compute with them: this rank's parts, where ranks have parts.
class ModelWeights final : public WeightSpace {
 public:
  /// All must outlive it.
  ModelWeights(TrainingStep& step, PredictOffload& offload, WeightAverage& average,
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

 private:
  std::vector<Tensor> empty_tensors(MemoryKind kind, const Stream& where) const;
  TrainingStep& step_;
  PredictOffload& offload_;
  WeightAverage& average_;
  MemoryPlaces& places_;
  const Stream& stream_;
};

/// A model's snapshot and the batches of a prediction, where memory overflows to.
class ModelRollback final : public Rollback {
 public:
  /// All must outlive it.
  ModelRollback(TrainingStep& step, PhasePosition& position, MemoryPlaces& places);
  void save_snapshot() override;
  void restore_snapshot() override;
  void drop_snapshot() override { snapshot_.drop(); }
  Batch keep_batch(const Batch& batch) override;
  Batch fetch_batch(const Batch& kept) override;
  void rewind(std::int64_t steps) override { position_.rewind(steps); }

  /// Saves the snapshot if there is one, as views; and loads it. Throws DataError.
  void save(State& state) const;
  void load(const State& state);

 private:
  TrainingStep& step_;
  PhasePosition& position_;
  MemoryPlaces& places_;
  const Stream& stream_;
  WeightSnapshot snapshot_;
};

/// A LossModel as the phase machine sees it: a training step, in each phase's precision, and what
/// lies in device memory meanwhile.
class ModelTrainable final : public Trainable {
 public:
  using Tell = std::function<void(const std::string&)>;
  /// `model`, which moves to where memory.weights says, and `stream` must outlive it; the snapshot
  /// and what is offloaded go to the places' host memory. `ranks`: see HybridTrainer.
  /// `tell` receives one line for the user when something asked for could not be done. Throws
  /// OutOfMemory, ConfigError.
  ModelTrainable(LossModel& model, const HybridTrainerConfig& config, const Stream& stream,
                 std::shared_ptr<MemoryPlaces> places, Tell tell, Communicator* ranks = nullptr);
  /// Makes places of its own around the host pool.
  ModelTrainable(LossModel& model, const HybridTrainerConfig& config, const Stream& stream,
                 std::shared_ptr<MemoryPool> host_pool, Tell tell)
      : ModelTrainable(model, config, stream,
                       std::make_shared<MemoryPlaces>(config.memory, stream, std::move(host_pool)),
                       std::move(tell)) {}

  void enter_phase(Phase phase) override;
  void begin_restore() override { offload_.begin_restore(); }
  double wait_for_loss(const Batch& batch, std::int64_t examples) override;
  GradientMeasurement wait_for_gradient(const Batch& batch) override;
  void apply_gradient() override;
  void scale_learning_rate(double factor) override { step_.rates().set_found_factor(factor); }
  double step_flops(const Batch& batch) const override { return model_.step_flops(batch); }
  bool is_one_of_several() const override { return step_.is_one_of_several(); }
  const Stream& stream() const override { return stream_; }
  LossModel& model() { return model_; }
  WeightSpace& weights() override { return weights_; }
  Rollback& rollback() override { return rollback_; }
  PendingWork& pending() override { return *pending_; }

  /// Steps done in all phases, which the schedule and dropout depend on.
  void set_steps_done(std::int64_t steps) { position_.set_steps_done(steps); }
  /// Computes losses, gradients and updates.
  TrainingStep& step() { return step_; }
  const TrainingStep& step() const { return step_; }
  /// The optimizer state in Predict.
  const PredictOffload& offload() const { return offload_; }
  const PhasePrecision& precision() const { return position_.precision(); }
  /// See move_selection_biases; to be called once a step.
  void balance_experts();
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
  LossModel& model_;
  const Stream& stream_;
  Communicator* const ranks_;
  const bool predicts_backward_;
  std::shared_ptr<MemoryPlaces> places_;
  Tell tell_;
  TrainingStep step_;
  PhaseMicroBatches micro_batches_;
  PhasePosition position_;
  PredictOffload offload_;
  ModelRollback rollback_;
  WeightAverage average_;
  RouterCopies routers_;
  ModelWeights weights_;
  std::unique_ptr<PendingWork> pending_;
  std::optional<MemoryUse> border_;
};

}  // namespace hybrid_trainer
