#pragma once

#include <functional>
#include <memory>
#include <optional>
#include <string>
#include <utility>

#include "hybrid_trainer/nn/loss_model.h"
#include "src/trainer/model_weights.h"
#include "src/trainer/pending_work.h"
#include "src/trainer/router_copies.h"

namespace hybrid_trainer {

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
  MethodSupport support() override { return pending_->support(); }

  /// Steps done in all phases, which the schedule and dropout depend on.
  void set_steps_done(std::int64_t steps) { position_.set_steps_done(steps); }
  /// Learning rate of the next step.
  double learning_rate() const { return step_.rates().rate(); }
  /// What the schedule's rates are multiplied by after going back to a checkpoint.
  void set_rate_factor(double factor) { step_.rates().set_rate_factor(factor); }
  /// How many the batch has in the phase entered last; see PhaseMicroBatches.
  std::int64_t micro_batches_of(const Batch& batch) const {
    return step_.micro_batches().of(batch);
  }
  const PhasePrecision& precision() const { return position_.precision(); }
  /// Of runs with a phase in fp16; else null.
  const LossScale* used_loss_scale() const { return step_.scales().used_loss_scale(); }

  /// Starts to gather the other ranks' updates where weights are whole, as their use does, too. A
  /// collective.
  void send_weights() { step_.send_weights(); }
  /// This rank's parts of the weights; null where it has all of them.
  const WeightParts* parts() const { return step_.parts(); }
  /// Calls `use` while the exact weights are in place of predicted ones.
  void with_exact_weights(const std::function<void()>& use) { pending_->with_exact(use); }
  /// See PendingWork.
  std::optional<bool> vote_to_stop(bool asks) { return pending_->vote_to_stop(asks); }
  /// See move_selection_biases; to be called once a step.
  void balance_experts();
  /// Weights and their mean change places; see WeightAverage.
  void exchange_average();
  /// Calls `read_out` while the weights are their mean, if there is one (training.average_weights).
  void with_average(const std::function<void()>& read_out);

  const OffloadUse& offload_use() const { return offload_.use(); }
  /// Of an asynchronous optimizer; nothing with the other methods.
  SpeculationUse speculation_use() const;
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
