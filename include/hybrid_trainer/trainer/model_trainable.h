#pragma once

#include <functional>
#include <memory>

#include "hybrid_trainer/memory/offload_strategy.h"
#include "hybrid_trainer/memory/weight_snapshot.h"
#include "hybrid_trainer/nn/loss_model.h"
#include "hybrid_trainer/optim/optimizer.h"
#include "hybrid_trainer/phases/trainable.h"
#include "hybrid_trainer/trainer/hybrid_trainer_config.h"
#include "hybrid_trainer/trainer/phase_precision.h"

namespace hybrid_trainer {

class GradientRecording;
struct PendingGradient;

/// A LossModel, its optimizer and the memory plan of the phases, as the phase machine sees them.
class ModelTrainable final : public Trainable {
 public:
  /// `model` and `stream` must outlive it; the snapshot and what is offloaded go to `host_pool`.
  /// `note` receives one line for the user when something asked for could not be done. Throws
  /// OutOfMemory, ConfigError.
  ModelTrainable(LossModel& model, const HybridTrainerConfig& config, const Stream& stream,
                 std::shared_ptr<MemoryPool> host_pool,
                 std::function<void(const std::string&)> note);
  ~ModelTrainable() override;

  void enter_phase(Phase phase) override;
  void begin_restore() override;
  double wait_for_loss(const Batch& batch) override;
  GradientMeasurement wait_for_gradient(const Batch& batch) override;
  void apply_gradient() override;
  std::vector<WeightView> weights() override;
  void weights_changed() override;
  void write_momentum_directions(const std::vector<Tensor>& directions) override;
  void save_snapshot() override;
  void restore_snapshot() override { snapshot_.restore(stream_); }
  void drop_snapshot() override { snapshot_.drop(); }
  void rewind(std::int64_t steps) override { rewound_ = steps; }
  const Stream& stream() const override { return stream_; }
  /// Learning rate of the next step.
  double learning_rate() const;

  /// Steps done in all phases, which the schedule and dropout depend on.
  void set_steps_done(std::int64_t steps) { steps_done_ = steps; }
  const PhasePrecision& precision() const { return precision_; }
  /// Weights, optimizer state and the snapshot if there is one, as views. Restores offloaded state
  /// first; release_after_save offloads it again, unless its restore had begun.
  void save(State& state);
  void release_after_save();
  /// Loads what save wrote. Throws DataError if the state is another model's.
  void load(const State& state);

 private:
  PendingGradient enqueue_gradient(const Batch& batch, const Stream& stream);
  void upload_step();
  bool records() const;
  void visit_parameters(const ParameterVisitor& visit) { model_.visit_parameters(visit); }
  void refresh_working_copies();
  void move_state_out();
  void bring_state_back();
  Pass pass(bool training, std::int64_t first_token = 0) const;
  std::vector<OffloadSlot> state_slots();

  LossModel& model_;
  HybridTrainerConfig config_;
  const Stream& stream_;
  std::function<void(const std::string&)> note_;
  std::vector<Parameter*> parameters_;
  std::unique_ptr<Optimizer> optimizer_;
  PhasePrecision precision_;
  std::unique_ptr<OffloadStrategy> offload_;
  WeightSnapshot snapshot_;
  std::unique_ptr<GradientRecording> recording_;
  Stream host_;        // of host_step_words_
  Tensor step_words_;  // of Pass, on CUDA
  Tensor host_step_words_;
  Phase phase_ = Phase::kWarmup;
  bool state_is_out_ = false;
  bool restore_begun_ = false;  // in this Predict
  double gradient_norm_ = 0;
  std::int64_t steps_done_ = 0;
  std::int64_t rewound_ = 0;  // steps
};

}  // namespace hybrid_trainer
