#pragma once

#include "hybrid_trainer/core/memory_pool.h"
#include "hybrid_trainer/core/phase.h"

namespace hybrid_trainer {

/// Distribution of this rank's tokens over experts; one value per layer with experts, in order.
struct ExpertLoads {
  /// Tokens of the busiest and idlest expert, relative to the mean.
  std::vector<double> most, least;
  /// Entropy of the router's probabilities in nats; at most log(experts).
  std::vector<double> entropy;
  std::vector<std::int64_t> dead;       // experts without tokens for kDeadAfter steps
  double balance_loss = 0, z_loss = 0;  // included in the training loss; 0 if disabled

  static constexpr std::int64_t kDeadAfter = 100;
  bool empty() const { return most.empty(); }
  bool operator==(const ExpertLoads&) const = default;
};

/// Share of expert choices that changed in Predict (StepRecord::routing_flips).
struct RoutingFlips {
  std::int64_t steps = 0;
  double sum = 0, most = 0;
  void add(double share);
  double mean() const { return steps == 0 ? 0 : sum / static_cast<double>(steps); }
  /// Returns "mean 12.3 %, at most 29.2 % of the choices, in 21 steps of Predict", or "".
  std::string text() const;
};

/// Returns the JSON object in a line of metrics.jsonl.
std::string json_text_of(const ExpertLoads& loads);
/// Returns a table of the layers for the console.
std::string text_of(const ExpertLoads& loads);

/// Aggregation of a field over steps: the last value, the sum, or the maximum.
enum class Fold { kLast, kSum, kMax };

/// How one StepRecord field is treated in files and summaries.
struct StepFieldUse {
  Fold fold = Fold::kLast;
  bool required = true;        // false: a line may lack it
  bool written = true;         // whether this step's line includes it
  const char* name = nullptr;  // name of the field in the event if JSON cannot represent its value
  StepFieldUse folded(Fold how) const { return {how, required, written, name}; }
  StepFieldUse named(const char* as) const { return {fold, required, written, as}; }
};

/// Record of one training step. The trainer makes it, and sinks write it.
struct StepRecord : StepOutcome {
  std::int64_t step = 0;  // counted from 1
  double learning_rate = 0;
  std::int64_t tokens = 0;           // tokens in this step's batch
  std::int64_t effective_batch = 0;  // examples of the step
  std::int64_t micro_batches = 0;
  double seconds = 0;  // wall-clock time of this step
  /// Wall-clock time between the previous step and this one: loading batches, evaluating, saving.
  double overhead_seconds = 0;
  double tokens_per_second = 0;
  MemoryUse device_memory;  // memory at the end of the step, and peaks since its beginning
  /// Peak device memory during a phase transition; 0 if there was none. Other peaks exclude it.
  std::size_t phase_entry_peak_bytes = 0;
  std::string memory_status;  // "normal" to "emergency"
  double memory_share = 0;    // peak as a share of the device budget; 0 without a budget
  double memory_risk = 0;     // risk of exceeding the budget if the recent trend continues, 0 to 1
  /// Largest known micro-batch, in examples, that fits the budget's target; 0 without a budget.
  std::int64_t recommended_micro_batch = 0;
  bool memory_leaks = false;  // live memory after a step has grown for many consecutive steps
  MemoryUse host_memory;      // memory of the pool for offloaded tensors
  std::optional<std::int64_t> planned_steps;  // length of the prediction; absent without predictor
  /// Number of exact updates pending during the step; absent without asynchronous updates.
  std::optional<std::int64_t> lag;
  /// Loss scale after the step, and number of gradient overflows. Absent without fp16.
  std::optional<double> loss_scale;
  std::int64_t overflows = 0;
  /// Slowest rank over about ten steps, such as "2 on HOST", and the ratio of its compute time to
  /// the others' mean; "" and absent if the ratio is below 1.1.
  std::string slowest_rank;
  std::optional<double> slowest_rank_ratio;
  ExpertLoads experts;  // empty if no router ran
  /// Share of (token, expert) pairs changed since Predict began; absent in other phases.
  std::optional<double> routing_flips;
  /// Preference training (dpo or orpo): mean rewards of chosen and of rejected answers, mean
  /// difference, and share of positive differences. Evaluations also compute the difference and the
  /// share.
  std::optional<double> reward_chosen, reward_rejected, reward_margin, preference_accuracy,
      validation_reward_margin, validation_preference_accuracy;
  /// Share of the predicted change that a decision kept: 1 accepted, 0 reverted, else shrunk.
  std::optional<double> kept_fraction;
  /// Validation loss before fine-tuning. Set only in the first record.
  std::optional<double> initial_validation_loss;
  /// Set if an evaluation followed this step.
  std::optional<double> validation_loss;
  std::optional<double> average_validation_loss;

  /// Returns whether `tokens` is the number of examples, because the model does not read text.
  bool counts_examples() const { return effective_batch > 0 && tokens == effective_batch; }
  const char* unit() const { return counts_examples() ? "examples" : "tokens"; }

  /// Visits all fields in the order of metrics.jsonl: visit(key, StepFieldUse, values...), with the
  /// field of each record in `of`. JSON, parsing and summaries use this list.
  template <class Visit, class... Records>
  static void visit_fields(const Visit& visit, Records&... of) {
    const StepFieldUse optional{.required = false};      // lines without the field are valid
    const auto if_present = [](const auto&... values) {  // written only if it has a value
      return StepFieldUse{.required = false, .written = (values.has_value() && ...)};
    };
    visit("step", {}, of.step...);
    visit("phase", {}, of.phase...);
    visit("loss", {.name = "loss"}, of.loss...);
    visit("learning_rate", {}, of.learning_rate...);
    visit("gradient_norm", {.name = "gradient norm"}, of.gradient_norm...);
    visit("tokens", {.fold = Fold::kSum}, of.tokens...);
    visit("effective_batch", optional, of.effective_batch...);
    visit("micro_batches", optional, of.micro_batches...);
    visit("seconds", {.fold = Fold::kSum}, of.seconds...);
    visit("overhead_seconds", optional.folded(Fold::kSum), of.overhead_seconds...);
    visit("tokens_per_second", {}, of.tokens_per_second...);
    visit("live_bytes", {}, of.device_memory.live...);
    visit("peak_bytes", {.fold = Fold::kMax}, of.device_memory.peak...);
    visit("peak_total_bytes", {.fold = Fold::kMax}, of.device_memory.peak_total...);
    visit("border_peak_bytes", optional, of.phase_entry_peak_bytes...);
    visit("memory_status", optional, of.memory_status...);
    visit("memory_share", optional, of.memory_share...);
    visit("memory_risk", optional, of.memory_risk...);
    visit("memory_leaks", optional, of.memory_leaks...);
    visit("recommended_micro_batch", optional, of.recommended_micro_batch...);
    visit("host_bytes", {}, of.host_memory.live_total...);
    visit("predicted_loss", {.name = "predicted loss"}, of.predicted_loss...);
    visit("confidence", {}, of.confidence...);
    visit("predictor", if_present(of.planned_steps...), of.predictor...);
    visit("planned_steps", if_present(of.planned_steps...), of.planned_steps...);
    visit("advantage", if_present(of.advantage...), of.advantage...);
    visit("lag", if_present(of.lag...), of.lag...);
    visit("prediction_error", if_present(of.lag...).named("prediction error"),
          of.prediction_error...);
    visit("rate_factor", if_present(of.rate_factor...), of.rate_factor...);
    visit("probe_position", if_present(of.rate_factor...), of.probe_position...);
    visit("probe_cost", if_present(of.rate_factor...), of.probe_cost...);
    visit("planning_cost", if_present(of.planning_cost...).folded(Fold::kSum), of.planning_cost...);
    visit("loss_scale", if_present(of.loss_scale...), of.loss_scale...);
    visit("overflows", if_present(of.loss_scale...), of.overflows...);
    visit("slowest_rank", if_present(of.slowest_rank_ratio...), of.slowest_rank...);
    visit("slowest_rank_ratio", if_present(of.slowest_rank_ratio...), of.slowest_rank_ratio...);
    visit("experts", StepFieldUse{.required = false, .written = (!of.experts.empty() && ...)},
          of.experts...);
    visit("routing_flips", if_present(of.routing_flips...), of.routing_flips...);
    visit("reward_chosen", if_present(of.reward_chosen...), of.reward_chosen...);
    visit("reward_rejected", if_present(of.reward_chosen...), of.reward_rejected...);
    visit("reward_margin", if_present(of.reward_chosen...), of.reward_margin...);
    visit("preference_accuracy", if_present(of.reward_chosen...), of.preference_accuracy...);
    visit("decision", optional, of.decision...);
    visit("kept_fraction", optional, of.kept_fraction...);
    visit("recovery", optional, of.recovery...);
    visit("cost", optional, of.cost...);
    visit("event", {}, of.event...);
    visit("warns", optional, of.warns...);
    visit("initial_validation_loss",
          if_present(of.initial_validation_loss...).named("initial validation loss"),
          of.initial_validation_loss...);
    visit("validation_loss", {.name = "validation loss"}, of.validation_loss...);
    visit("average_validation_loss",
          if_present(of.average_validation_loss...).named("average's validation loss"),
          of.average_validation_loss...);
    visit("validation_reward_margin", if_present(of.validation_reward_margin...),
          of.validation_reward_margin...);
    visit("validation_preference_accuracy", if_present(of.validation_preference_accuracy...),
          of.validation_preference_accuracy...);
  }
};

}  // namespace hybrid_trainer
