#pragma once

#include "hybrid_trainer/config/hybrid_trainer_config.h"
#include "hybrid_trainer/memory/memory_places.h"
#include "hybrid_trainer/nn/loss_model.h"
#include "hybrid_trainer/nn/row_states.h"
#include "src/step/immediate_updates.h"
#include "src/step/learning_rates.h"
#include "src/step/step_scales.h"

namespace hybrid_trainer {

/// Forward and backward of one micro-batch, with its activations where the memory settings want them.
class MicroBatchPass {
 public:
  /// All must outlive it. Dropout depends on the steps that `rates` counts.
  MicroBatchPass(LossModel& model, const HybridTrainerConfig& config, const LearningRates& rates,
                 const StepScales& scales, MemoryPlaces& places, const Stream& stream);
  /// Activations and products are of this dtype from now on, and so are the copies of the weights
  /// that they read. `may_record`: passes may be recorded and replayed (training.cuda_graphs).
  void compute_in(DType dtype, bool may_record);
  /// Whether passes are to be recorded: not while a profile times each kernel.
  bool records() const;
  /// Copies the step's number to where recorded passes read it. The copy is done before the next
  /// one: every step blocks.
  void upload_step_number();

  /// One of the equal parts of a step's batch.
  struct MicroBatch {
    std::int64_t index, count;
    bool is_of_step = true;  // else it is another rank's, computed for its collectives alone
  };
  /// A step's gradient begins: what routers have counted, and the magnitudes of fp8, go.
  void begin_gradient() const;
  /// Enqueues forward and backward of a micro-batch, whose gradients go to the parameters' sink;
  /// `updates`, if given, sees the loss in between. Returns the loss, (1) f64.
  Tensor enqueue(const Batch& part, const MicroBatch& place, const Stream& stream,
                 ImmediateUpdates* updates = nullptr) const;
  /// How often backward of a micro-batch contributes to each gradient.
  std::int64_t contributions(const Batch& part) const;
  /// The next batch begins with the states that the last one ended with.
  void carry_on_states() {
    if (states_) states_->commit();
  }
  /// What sequences begin with (data.carry_state), or null.
  RowStates* states() const { return states_.get(); }
  /// Enqueues forward alone, without dropout. Returns its loss, (1) f64.
  Tensor enqueue_forward(const Batch& part) const;
  /// The mean of such losses, of which the last is of `last_share` as many examples. Blocks.
  double wait_for_mean_of(const std::vector<Tensor>& losses, double last_share = 1) const;

 private:
  Pass pass(bool training, std::int64_t first_token, const Batch& part) const;

  LossModel& model_;
  const std::uint64_t seed_;
  const float label_smoothing_;
  const MemoryConfig memory_;
  const LearningRates& rates_;
  const StepScales& scales_;
  MemoryPlaces& places_;
  const Stream& stream_;
  DType dtype_ = DType::kF32;
  bool may_record_ = false;
  const std::unique_ptr<RowStates> states_;
  Tensor step_words_, host_step_words_;  // of Pass, where passes are recorded
};

}  // namespace hybrid_trainer
