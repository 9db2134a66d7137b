#pragma once

#include "hybrid_trainer/memory/memory_places.h"
#include "hybrid_trainer/nn/segmented_pass.h"
#include "src/trainer/sharding/leaf_gradients.h"
#include "src/trainer/step/step_scales.h"

namespace hybrid_trainer {

/// Number of micro-batches per step in each phase. It doubles when memory is short.
class MicroBatches {
 public:
  MicroBatches(const HybridTrainerConfig& config, const Stages& stages);

  /// Selects the number of micro-batches of the phase, and resets the factor of this rank.
  void enter(Phase phase) {
    phase_ = phase;
    own_factor_ = 1;
  }
  /// Returns the number of micro-batches of this batch. A smaller batch of a stage has as few
  /// micro-batches as possible, none larger than the micro-batches of the full batch.
  std::int64_t of(const Batch& batch) const { return of(batch, own_factor_ * count()); }
  Batch part(const Batch& batch, std::int64_t index) const;
  /// Throws ShapeMismatch if the batch cannot be divided.
  void require_whole(const Batch& batch) const;

  bool can_halve(const Batch& batch) const { return halved(batch).has_value(); }
  /// Halves micro-batches from now on, on all ranks or, if `alone` is set, only on this one.
  void halve(const Batch& batch, bool alone);

  /// Saves the numbers of micro-batches. Resets the factor of this rank, which is not saved.
  void save(State& state);
  /// Loads the numbers, so that results do not depend on interruptions. If the budget has grown,
  /// each phase tries the configured number again, and `report` receives a message. Numbers found
  /// without a budget stay: other programs' memory must not affect results.
  void load(const State& state, const std::function<void(const std::string&)>& report);

 private:
  std::int64_t of(const Batch& batch, std::int64_t largest_count) const;
  std::optional<std::int64_t> halved(const Batch& batch) const;
  /// Returns the number of micro-batches of a batch of the largest size, on all ranks.
  std::int64_t count() const { return counts_[static_cast<std::size_t>(phase_)]; }

  const std::vector<Stage>& stages_;
  const std::int64_t configured_;
  const std::size_t budget_bytes_;  // device budget; 0: none
  Phase phase_ = Phase::kWarmup;
  std::array<std::int64_t, kPhases> counts_{};  // indexed by phase
  std::int64_t own_factor_ = 1;  // additional factor of this rank, without effect on other ranks
};

/// Repeats a step with smaller micro-batches if memory is short, in the same way on all ranks.
class MemoryRetry {
 public:
  MemoryRetry(const HybridTrainerConfig& config, MicroBatches& micro_batches, Communicator* ranks,
              WeightParts* parts, const Stream& stream);
  bool is_distributed() const { return ranks_ != nullptr && ranks_->size() > 1; }
  /// Returns whether this rank may repeat a step by itself.
  bool may_repeat_step(bool involves_peers) const {
    return !is_distributed() || (!involves_peers && keeps_shares_when_halved_);
  }
  /// Frees memory for the batch, or requests to halve its micro-batches. Rethrows `error`, the
  /// current exception, if neither is possible.
  StepRetry wait_for_retry(const Batch& batch, const OutOfMemory& error, Optimizer& optimizer);
  void repeat_step(const Batch& batch, StepRetry retry, bool involves_peers);
  /// Returns the largest value of all ranks. Collective; blocks.
  StepRetry wait_for_common_retry(StepRetry here) const;

  /// Returns the examples of a micro-batch to compute. After this rank has run out of memory, it is
  /// a single example: the step will be repeated, but its collectives still need this rank.
  static Batch computed_part(const Batch& part, StepRetry retry) {
    return retry == StepRetry::kNone ? part : part.examples(0, 1);
  }
  /// Handles a shortage of memory in a micro-batch. The rank computes this and the remaining
  /// micro-batches with one example each, and `retry` informs the other ranks at the end of the
  /// step. Rethrows `error`, the current exception, if this does not help.
  void reduce_memory(const Batch& batch, const OutOfMemory& error, StepRetry& retry,
                     Optimizer& optimizer);

 private:
  MicroBatches& micro_batches_;
  Communicator* ranks_;
  WeightParts* parts_;
  const Stream& stream_;
  const bool has_offloaded_activations_;
  /// True if halving on one rank does not change the examples of the other ranks.
  const bool keeps_shares_when_halved_;
};

/// Gradients that only the update uses. Each complete gradient updates its weight immediately and
/// is freed. After a non-finite gradient or loss, no further weights are updated.
class ImmediateUpdates final : public GradientSink {
 public:
  ImmediateUpdates(const std::vector<Parameter*>& parameters, Optimizer& optimizer,
                   const Stream& stream);
  /// Begins a step. Throws Diverged if the last step has updated only some weights.
  void begin(float learning_rate);
  void observe_loss(double loss) { is_finite_ = is_finite_ && std::isfinite(loss); }
  Tensor gradient(const Parameter& parameter) const override;
  /// Blocks until the finiteness of the gradient is known.
  void ready(const Parameter& parameter, const Stream& stream) override;
  /// Returns the global L2 norm of the complete gradients, computed as in gradient_square_sums.
  /// Throws Diverged if it or a loss is not finite but some weights are already updated.
  double end();
  /// Returns whether this step has updated some weights but not all.
  bool is_updating() const { return is_updating_; }
  void require_whole() const;  // throws Diverged if is_updating()

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

/// Runs forward and backward of one micro-batch, with activations at their configured placement.
class MicroBatchPass {
 public:
  /// All arguments must outlive this object. Dropout depends on the step count of `rates`.
  MicroBatchPass(LossModel& model, const HybridTrainerConfig& config, const LearningRates& rates,
                 const StepScales& scales, MemoryPlaces& places, const Stream& stream);
  /// Sets the dtype of activations, products and the weight copies that they read. `may_record`:
  /// passes may be recorded and replayed (training.cuda_graphs).
  void compute_in(DType dtype, bool may_record);
  /// Returns whether passes are recorded; false while a profile times each kernel.
  bool records() const;
  /// Copies the step number for recorded passes. Each step blocks, which completes the copy.
  void upload_step_number();

  struct MicroBatch {
    std::int64_t index, count;
    bool is_of_step = true;  // false: computed only to take part in collectives
  };
  /// Begins the gradient of a step. Clears router counts, preference statistics and fp8 magnitudes.
  void begin_gradient() const;
  /// Enqueues forward and backward of a micro-batch, which pass gradients to the parameters' sinks.
  /// `updates`, if not null, observes the loss after forward. Returns the loss, (1) f64.
  Tensor enqueue(const Batch& part, const MicroBatch& place, const Stream& stream,
                 ImmediateUpdates* updates = nullptr) const;
  /// Returns the number of times that backward of a micro-batch adds to each gradient.
  std::int64_t contributions(const Batch& part) const;
  /// Makes the final states of the last batch the initial states of the next batch.
  void commit_states() {
    if (states_) states_->commit();
  }
  /// Returns the initial states of sequences, or null without data.carry_state.
  RowStates* states() const { return states_.get(); }
  /// Enqueues only forward, without dropout. Returns the loss, (1) f64.
  Tensor enqueue_forward(const Batch& part) const;
  /// Returns the head if its loss compares the texts of all micro-batches of a step, else null.
  const TextHead* comparing_head() const;
  /// Enqueues forward only. Returns the outputs of the texts of micro-batch `index`, with its
  /// dropout, or without dropout if there is no index.
  Tensor enqueue_outputs(const Batch& part, std::optional<std::int64_t> index = {}) const;
  float loss_scale() const { return static_cast<float>(scales_.loss_scale()); }
  /// Returns the mean loss over examples. The last micro-batch has `last_share` times as many
  /// examples as the others. Blocks.
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
  Tensor step_words_, host_step_words_;  // Pass::step_words, if passes are recorded
};

}  // namespace hybrid_trainer
