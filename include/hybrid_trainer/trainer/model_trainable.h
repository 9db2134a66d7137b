#pragma once

#include <array>
#include <functional>
#include <memory>
#include <optional>
#include <utility>

#include "hybrid_trainer/memory/memory_places.h"
#include "hybrid_trainer/memory/offload_strategy.h"
#include "hybrid_trainer/memory/weight_average.h"
#include "hybrid_trainer/memory/weight_snapshot.h"
#include "hybrid_trainer/nn/loss_model.h"
#include "hybrid_trainer/optim/speculative_optimizer.h"
#include "hybrid_trainer/phases/trainable.h"
#include "hybrid_trainer/trainer/hybrid_trainer_config.h"
#include "hybrid_trainer/trainer/phase_precision.h"

namespace hybrid_trainer {

class Communicator;
class Stretches;
class TrainingStep;
class WeightParts;

/// A LossModel as the phase machine sees it: a training step, in each phase's precision, and what
/// lies in device memory meanwhile.
class ModelTrainable final : public Trainable {
 public:
  /// `model`, which moves to where memory.weights says, and `stream` must outlive it; the snapshot
  /// and what is offloaded go to the places' host memory. `ranks`: see HybridTrainer.
  /// `tell` receives one line for the user when something asked for could not be done. Throws
  /// OutOfMemory, ConfigError.
  ModelTrainable(LossModel& model, const HybridTrainerConfig& config, const Stream& stream,
                 std::shared_ptr<MemoryPlaces> places, std::function<void(const std::string&)> tell,
                 Communicator* ranks = nullptr);
  /// The same with places of its own around the host pool.
  ModelTrainable(LossModel& model, const HybridTrainerConfig& config, const Stream& stream,
                 std::shared_ptr<MemoryPool> host_pool,
                 std::function<void(const std::string&)> tell)
      : ModelTrainable(model, config, stream,
                       std::make_shared<MemoryPlaces>(config.memory, stream, std::move(host_pool)),
                       std::move(tell)) {}
  ~ModelTrainable() override;

  void enter_phase(Phase phase) override;
  void begin_restore() override;
  double wait_for_loss(const Batch& batch) override {
    return wait_for_loss_of(batch, batch.size());
  }
  double wait_for_loss_of(const Batch& batch, std::int64_t examples) override;
  GradientMeasurement wait_for_gradient(const Batch& batch) override;
  void apply_gradient() override;
  LateUpdate wait_for_late_update(bool finite) override;
  double wait_for_own_gradient(const Batch& batch) override;
  std::optional<GradientMeasurement> wait_for_late_gradient(bool all) override;
  void predict_weights() override;
  LocalStep wait_for_local_step(const Batch& batch) override;
  LocalStep wait_for_exact_weights() override;
  /// `use` finds the exact weights where predicted ones are.
  void with_exact_weights(const std::function<void()>& use);
  /// See LateGradients and LocalSteps; absent where nothing is under way.
  std::optional<bool> late_vote_to_stop(bool asks);
  Batch keep_batch(const Batch& batch) override;
  Batch fetch_batch(const Batch& kept) override;
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
  void save_snapshot() override;
  void restore_snapshot() override;
  void drop_snapshot() override { snapshot_.drop(); }
  void rewind(std::int64_t steps) override;
  void scale_learning_rate(double factor) override;
  double step_flops(const Batch& batch) const override {
    return flops_per_token_ * static_cast<double>(batch.tokens());
  }
  const Stream& stream() const override { return stream_; }
  /// Learning rate of the next step.
  double learning_rate() const;
  /// See TrainingStep.
  void set_rate_factor(double factor);
  bool is_one_of_several() const override;

  /// Whether there is a mean of the weights (training.average_weights).
  bool has_average() const { return average_.exists(); }
  /// Weights and their mean change places; see WeightAverage.
  void exchange_average();

  /// Steps done in all phases, which the schedule and dropout depend on.
  void set_steps_done(std::int64_t steps);
  /// This rank's parts of the weights; null where it has all of them.
  const WeightParts* parts() const;
  /// What has changed of weights that ranks have parts of gets under way to where they are whole, as
  /// their use does, too. A collective.
  void send_weights();
  const PhasePrecision& precision() const { return precision_; }
  const OffloadUse& offload_use() const { return offload_->use(); }
  /// Of late updates; nothing where the exact state is on the device.
  SpeculationUse speculation_use() const;
  /// Of the phase entered last: at first the config's, twice as many from each time on that memory
  /// was too small in that phase; for a stretch's batch as many as are no larger.
  std::int64_t micro_batches_of(const Batch& batch) const;
  /// What the device took until the phase was entered, if one was since the last call; the pool's
  /// peaks begin anew after it. To be called once a step.
  std::optional<MemoryUse> take_border() { return std::exchange(border_, {}); }
  /// Weights, optimizer state and the snapshot if there is one, as views. Throws Diverged where a
  /// step ended when some weights were updated and others not. Restores offloaded state
  /// first; release_after_save offloads it again, unless its restore had begun or it was rounded.
  void save(State& state);
  void release_after_save();
  /// Loads what save wrote, also between two steps of another phase, but for a Predict of forward
  /// passes. Throws DataError if the state is another model's.
  void load(const State& state);

 private:
  void save_late(State& state) const;
  void drop_late();
  void load_late(const State& state);
  void take_micro_batches_of(Phase phase);
  void save_micro_batches(State& state);
  void load_micro_batches(const State& state);
  /// Runs what may halve micro-batches, and tells if it did.
  template <class Compute>
  auto tell_halving(const Batch& batch, const Compute& compute);
  void begin_lag();
  void move_state_out();
  void bring_state_back();
  void park_masters();
  void begin_return();
  DType dtype_here() const;
  void go_to_step();

  const Stream& stream_;
  std::shared_ptr<MemoryPlaces> places_;
  std::int64_t micro_batches_of_config_;
  std::size_t budget_bytes_;                           // of the device; 0: none
  std::array<std::int64_t, kPhases> micro_batches_{};  // by phase, but for the one entered last
  double flops_per_token_;
  bool predicts_backward_;
  /// Whether Predict moves masters and direction to the host.
  bool empties_predict_;
  std::function<void(const std::string&)> tell_;
  std::unique_ptr<TrainingStep> step_;
  std::unique_ptr<Stretches> stretches_;
  PhasePrecision precision_;
  std::optional<DType> dtype_{};              // that the step computes in, once a phase was entered
  std::unique_ptr<OffloadStrategy> offload_;  // of the optimizer state
  Whereabouts before_save_ = Whereabouts::kResident;
  bool is_rounded_ = false;  // the state, by this Predict's offload
  WeightSnapshot snapshot_;
  WeightAverage average_;
  Phase phase_ = Phase::kWarmup;
  std::optional<MemoryUse> border_;
  std::int64_t steps_done_ = 0, rewound_ = 0;
};

}  // namespace hybrid_trainer
