#pragma once

#include <cmath>

#include "hybrid_trainer/config/hybrid_trainer_config.h"
#include "hybrid_trainer/core/batch.h"
#include "hybrid_trainer/core/error.h"
#include "hybrid_trainer/memory/memory_places.h"
#include "hybrid_trainer/nn/gradient_sink.h"
#include "hybrid_trainer/nn/network.h"
#include "hybrid_trainer/nn/segmented_pass.h"
#include "hybrid_trainer/optim/optimizer.h"
#include "src/config/stages.h"
#include "src/distributed/communicator.h"
#include "src/trainer/sharding/leaf_gradients.h"
#include "src/trainer/sharding/weight_parts.h"
#include "src/trainer/step/step_scales.h"

namespace hybrid_trainer {

/// Number of micro-batches per step in each phase: as configured, doubled whenever memory is short.
class MicroBatches {
 public:
  /// `stages` must outlive this object.
  MicroBatches(const HybridTrainerConfig& config, const Stages& stages);

  /// Switches to the number of micro-batches of the phase, and resets this rank's own factor.
  void enter(Phase phase) {
    phase_ = phase;
    own_factor_ = 1;
  }
  /// Returns the number of micro-batches of this batch. A smaller batch of a stage has as few
  /// micro-batches as possible, but none that is larger than in the largest batch.
  std::int64_t of(const Batch& batch) const { return of(batch, own_factor_ * count()); }
  /// Returns the micro-batch with this index.
  Batch part(const Batch& batch, std::int64_t index) const;
  /// Throws ShapeMismatch if the batch cannot be divided.
  void require_whole(const Batch& batch) const;

  /// Returns whether the loss depends on which examples share a micro-batch: it is never halved.
  bool compares_examples() const { return compares_examples_; }
  bool can_halve(const Batch& batch) const { return halved(batch).has_value(); }
  /// Halves the batch's micro-batches from now on, on all ranks or only on this one (`alone`).
  void halve(const Batch& batch, bool alone);

  /// Saves the numbers of micro-batches. Resets this rank's own factor, unknown to a resumed run.
  void save(State& state);
  /// Loads the numbers of micro-batches from a checkpoint, so that results do not depend on when a
  /// run was stopped. If the budget has grown, each phase tries the configured number again, and
  /// `report` gets one message. Numbers that were found without a budget stay, because the memory
  /// use of other programs must not affect results.
  void load(const State& state, const std::function<void(const std::string&)>& report);

 private:
  std::int64_t of(const Batch& batch, std::int64_t largest_count) const;
  std::optional<std::int64_t> halved(const Batch& batch) const;
  /// Returns the number of micro-batches of a batch of the largest size, on all ranks.
  std::int64_t count() const { return counts_[static_cast<std::size_t>(phase_)]; }

  const std::vector<Stage>& stages_;
  const std::int64_t configured_;
  const bool compares_examples_;
  const std::size_t budget_bytes_;  // of the device; 0: none
  Phase phase_ = Phase::kWarmup;
  std::array<std::int64_t, kPhases> counts_{};  // by phase
  std::int64_t own_factor_ = 1;  // additional factor of this rank, without effect on other ranks
};

/// Repeats a step in smaller micro-batches if memory is too short, the same on all ranks.
class MemoryRetry {
 public:
  /// All must outlive this object; `ranks` and `parts` may be null.
  MemoryRetry(const HybridTrainerConfig& config, MicroBatches& micro_batches, Communicator* ranks,
              WeightParts* parts, const Stream& stream);
  bool is_distributed() const { return ranks_ != nullptr && ranks_->size() > 1; }
  /// Returns whether this rank may repeat a step by itself.
  bool may_repeat_step(bool involves_peers) const {
    return !is_distributed() || (!involves_peers && keeps_shares_when_halved_);
  }
  /// Frees memory for the batch, or requests that its micro-batches be halved. Rethrows `error`,
  /// the current exception, if neither is possible.
  StepRetry wait_for_retry(const Batch& batch, const OutOfMemory& error, Optimizer& optimizer);
  /// Halves the batch's micro-batches if requested.
  void repeat_step(const Batch& batch, StepRetry retry, bool involves_peers);
  /// Returns the strongest request of all ranks. Collective; blocks.
  StepRetry wait_for_common_retry(StepRetry here) const;

  /// Returns the examples of a micro-batch to compute: just one after this rank has run out of
  /// memory. The step will then be repeated, but its collectives still need the rank.
  static Batch computed_part(const Batch& part, StepRetry retry) {
    return retry == StepRetry::kNone ? part : part.examples(0, 1);
  }
  /// Handles a shortage of memory in a micro-batch. The rank computes this micro-batch and the rest
  /// of the step on one example, and `retry` informs the other ranks at the end. Rethrows `error`,
  /// the current exception, if that does not help.
  void reduce_memory(const Batch& batch, const OutOfMemory& error, StepRetry& retry,
                     Optimizer& optimizer);

 private:
  MicroBatches& micro_batches_;
  Communicator* ranks_;
  WeightParts* parts_;
  const Stream& stream_;
  const bool has_offloaded_activations_;
  /// True if halving on one rank leaves each rank's examples unchanged.
  const bool keeps_shares_when_halved_;
};

/// Gradients that are used only for the update: each gradient updates its weight once it is
/// complete, and is then freed. No weight is updated after a non-finite gradient or loss.
class ImmediateUpdates final : public GradientSink {
 public:
  /// All must outlive this object.
  ImmediateUpdates(const std::vector<Parameter*>& parameters, Optimizer& optimizer,
                   const Stream& stream);
  /// Begins a step. Throws Diverged if the last one stopped between updates.
  void begin(float learning_rate);
  void observe_loss(double loss) { is_finite_ = is_finite_ && std::isfinite(loss); }
  Tensor gradient(const Parameter& parameter) const override;
  /// Blocks until the finiteness of the gradient is known.
  void ready(const Parameter& parameter, const Stream& stream) override;
  /// Ends a step with complete gradients and returns their global L2 norm, as gradient_square_sums
  /// computes it on one device. Throws Diverged if it or a loss is not finite after some updates.
  double end();
  /// Returns whether some weights have this step's update and others do not.
  bool is_updating() const { return is_updating_; }
  /// Throws Diverged if is_updating().
  void require_whole() const;

 private:
  struct Slot {
    std::size_t index = 0;
    bool is_complete = false;
    double square_sum = 0;
    Tensor gradient{};
  };
  const std::vector<Parameter*>& parameters_;
  Optimizer& optimizer_;
  const Stream& stream_;
  mutable std::unordered_map<const Parameter*, Slot> slots_;
  float learning_rate_ = 0;
  bool is_finite_ = true, is_updating_ = false;
};

/// Forward and backward of one micro-batch, with activations at their configured place.
class MicroBatchPass {
 public:
  /// All must outlive this object. Dropout depends on the step count of `rates`.
  MicroBatchPass(LossModel& model, const HybridTrainerConfig& config, const LearningRates& rates,
                 const StepScales& scales, MemoryPlaces& places, const Stream& stream);
  /// Sets the dtype of activations, products and the weight copies that they read. `may_record`:
  /// passes may be recorded and replayed (training.cuda_graphs).
  void compute_in(DType dtype, bool may_record);
  /// Returns whether passes are recorded; false while a profile times each kernel.
  bool records() const;
  /// Copies the step number to the memory that recorded passes read. Each step blocks, so the copy
  /// is done before the next one.
  void upload_step_number();

  /// One of the equal parts of a step's batch.
  struct MicroBatch {
    std::int64_t index, count;
    bool is_of_step = true;  // false: computed only for its collectives
  };
  /// Begins the gradient of a step: clears router counts, preference statistics and fp8 magnitudes.
  void begin_gradient() const;
  /// Enqueues forward and backward of a micro-batch; gradients go to the parameters' sink.
  /// `updates`, if given, observes the loss after forward. Returns the loss, (1) f64.
  Tensor enqueue(const Batch& part, const MicroBatch& place, const Stream& stream,
                 ImmediateUpdates* updates = nullptr) const;
  /// Returns the number of times that backward of a micro-batch adds to each gradient.
  std::int64_t contributions(const Batch& part) const;
  /// Makes the next batch begin with the final states of the last one.
  void commit_states() {
    if (states_) states_->commit();
  }
  /// Returns the initial states of sequences (data.carry_state), or null.
  RowStates* states() const { return states_.get(); }
  /// Enqueues forward only, without dropout. Returns its loss, (1) f64.
  Tensor enqueue_forward(const Batch& part) const;
  /// Returns the mean over examples; the last loss has `last_share` times as many examples. Blocks.
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
  Tensor step_words_, host_step_words_;  // for Pass, if passes are recorded
};

}  // namespace hybrid_trainer
