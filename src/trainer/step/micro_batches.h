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
#include "src/config/stretches.h"
#include "src/distributed/communicator.h"
#include "src/trainer/sharding/leaf_gradients.h"
#include "src/trainer/sharding/weight_parts.h"
#include "src/trainer/step/step_scales.h"

namespace hybrid_trainer {

/// Into how many micro-batches a step's batch divides, in each phase: at first as the config says, and
/// twice as many from each time on that memory was too small in that phase.
class MicroBatches {
 public:
  /// `stretches` must outlive it.
  MicroBatches(const HybridTrainerConfig& config, const Stretches& stretches);

  /// Uses this phase's from now on; this rank alone has no more than others.
  void enter(Phase phase) {
    phase_ = phase;
    own_factor_ = 1;
  }
  /// Of this batch: of stretches' smaller ones as many as are no larger than those of the largest.
  std::int64_t of(const Batch& batch) const { return of(batch, own_factor_ * count()); }
  /// Number `index` of the batch's micro-batches.
  Batch part(const Batch& batch, std::int64_t index) const;
  /// Throws ShapeMismatch where the batch does not divide.
  void require_whole(const Batch& batch) const;

  /// Whether this batch's can be halved.
  bool can_halve(const Batch& batch) const { return halved(batch).has_value(); }
  /// Halves this batch's, of which there are more from then on: on all ranks, or on this one `alone`.
  void halve(const Batch& batch, bool alone);

  /// Saves them. Where a rank has halved its own alone, it goes on as a resumed run does, which does
  /// not know.
  void save(State& state);
  /// Loads a checkpoint's, so that bits do not depend on when a run was stopped. Where the budget has
  /// grown since, each phase tries the config's again, and `tell` receives one line; a number that
  /// was found without a budget stays, as what other programs take of the memory decides nothing.
  void load(const State& state, const std::function<void(const std::string&)>& tell);

 private:
  std::int64_t of(const Batch& batch, std::int64_t of_largest) const;
  std::optional<std::int64_t> halved(const Batch& batch) const;
  /// Of a batch as large as any, on all ranks.
  std::int64_t count() const { return counts_[static_cast<std::size_t>(phase_)]; }

  const std::vector<Stretch>& stretches_;
  const std::int64_t of_config_;
  const std::size_t budget_bytes_;  // of the device; 0: none
  Phase phase_ = Phase::kWarmup;
  std::array<std::int64_t, kPhases> counts_{};  // by phase
  std::int64_t own_factor_ = 1;  // as many times more on this rank, for which others do not wait
};

/// What becomes of a step for which memory is too short: it begins again in smaller micro-batches, on
/// all ranks alike.
class MemoryRetry {
 public:
  /// All must outlive it; `ranks` and `parts` may be null.
  MemoryRetry(const HybridTrainerConfig& config, MicroBatches& micro_batches, Communicator* ranks,
              WeightParts* parts, const Stream& stream);
  bool is_one_of_several() const { return ranks_ != nullptr && ranks_->size() > 1; }
  /// Whether this rank may begin again by itself, where a step `concerns_others` or not.
  bool may_begin_again(bool concerns_others) const {
    return !is_one_of_several() || (!concerns_others && shares_stay_where_halved_);
  }
  /// Makes room for the batch, or says that its micro-batches are to be halved. Throws `error`, which
  /// is being handled, where neither is possible.
  StepRetry wait_for_way_out(const Batch& batch, const OutOfMemory& error, Optimizer& optimizer);
  /// Halves the batch's micro-batches if that is what is to be done.
  void begin_again(const Batch& batch, StepRetry retry, bool concerns_others);
  /// What the ranks want most. A collective; blocks.
  StepRetry wait_for_most_wanted(StepRetry here) const;

  /// What is computed of a micro-batch of a step that has this `retry`: where memory was too short on
  /// this rank, one example alone, for results that do not count, as what several ranks do together in
  /// it each has to come to.
  static Batch computed_part(const Batch& part, StepRetry retry) {
    return retry == StepRetry::kNone ? part : part.examples(0, 1);
  }
  /// Memory was too short for a micro-batch of the batch: it is to be computed again on one example,
  /// and so are the step's later ones. Then `retry` says so, for all to know at the end. Throws
  /// `error`, which is being handled, where that is no way out.
  void compute_less(const Batch& batch, const OutOfMemory& error, StepRetry& retry,
                    Optimizer& optimizer);

 private:
  MicroBatches& micro_batches_;
  Communicator* ranks_;
  WeightParts* parts_;
  const Stream& stream_;
  const bool has_activations_elsewhere_;
  /// Whether each rank has the same examples where micro-batches are halved on it alone.
  const bool shares_stay_where_halved_;
};

/// Gradients that nothing but their update reads: each updates its weight as soon as it is complete,
/// and is gone then. From one, or a loss, on that is not finite, no weight is updated.
class ImmediateUpdates final : public GradientSink {
 public:
  /// All must outlive it.
  ImmediateUpdates(const std::vector<Parameter*>& parameters, Optimizer& optimizer,
                   const Stream& stream);
  /// Begins a step. Throws Diverged where the last one began to update and did not end.
  void begin(float learning_rate);
  /// A loss of this step.
  void observe_loss(double loss) { is_finite_ = is_finite_ && std::isfinite(loss); }
  Tensor gradient(const Parameter& parameter) const override;
  /// Blocks until it is known whether the gradient is finite.
  void ready(const Parameter& parameter, const Stream& stream) override;
  /// Ends a step whose gradients are complete; returns the L2 norm of all, as
  /// gradient_square_sums sums it on one device. Throws Diverged where it or a loss is not finite
  /// and some weights are updated.
  double end();
  /// Some weights have this step's update and others do not.
  bool is_between() const { return is_between_; }
  /// Throws Diverged if so.
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
  bool is_finite_ = true, is_between_ = false;
};

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
