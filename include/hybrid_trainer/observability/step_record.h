#pragma once

#include "hybrid_trainer/core/memory_pool.h"
#include "hybrid_trainer/core/phase.h"

namespace hybrid_trainer {

/// How the routers of a step spread its tokens over their experts; one value for each layer with
/// experts, in the order of the layers. Over several ranks, of this rank's tokens.
struct ExpertLoads {
  /// Tokens of the busiest and of the idlest expert over the mean of all; 1 is even.
  std::vector<double> most, least;
  /// Of the router's probabilities, a mean over tokens, in nats; log of the experts is even.
  std::vector<double> entropy;
  /// Experts that no token has gone to for kDeadAfter steps.
  std::vector<std::int64_t> dead;
  /// The losses that were added to the training loss: 0 where they are off.
  double balance_loss = 0, z_loss = 0;

  static constexpr std::int64_t kDeadAfter = 100;
  bool empty() const { return most.empty(); }
  bool operator==(const ExpertLoads&) const = default;
};

/// Which share of the experts' choices Predict has changed, over the steps that tell (routing_flips).
struct RoutingFlips {
  std::int64_t steps = 0;
  double sum = 0, most = 0;
  void add(double share);
  double mean() const { return steps == 0 ? 0 : sum / static_cast<double>(steps); }
  /// "mean 12.3 %, at most 29.2 % of the choices, in 21 steps of Predict"; "" of no step.
  std::string text() const;
};

/// One object, as in a line of metrics.jsonl.
std::string json_text_of(const ExpertLoads& loads);
/// A table of the layers, for people.
std::string text_of(const ExpertLoads& loads);

/// How several steps' values of a field become one: the last that there is, their sum, or the most.
enum class Fold { kLast, kSum, kMost };

/// What files and summaries do with one field of a StepRecord.
struct StepFieldUse {
  Fold fold = Fold::kLast;
  bool required = true;        // else a line may lack it
  bool written = true;         // whether this step's line has it
  const char* name = nullptr;  // in the event, where JSON cannot hold the number
  StepFieldUse folded(Fold how) const { return {how, required, written, name}; }
  StepFieldUse named(const char* as) const { return {fold, required, written, as}; }
};

/// Record of one training step: the trainer makes it, sinks write it.
struct StepRecord {
  std::int64_t step = 0;  // from 1
  Phase phase = Phase::kWarmup;
  double loss = 0;  // nats per token, mean over the batch
  double learning_rate = 0;
  /// Global L2 norm before clipping; absent where no gradient was taken.
  std::optional<double> gradient_norm;
  std::int64_t tokens = 0;           // in this step's batch
  std::int64_t effective_batch = 0;  // examples of the step
  std::int64_t micro_batches = 0;    // that it was computed in
  double seconds = 0;                // wall-clock time of this step
  /// Wall-clock time between the record before and this one that is not the step's: batches, evaluation,
  /// saving.
  double overhead_seconds = 0;
  double tokens_per_second = 0;
  MemoryUse device_memory;  // at the end of the step; peaks since the step began
  /// Highest total of device memory while this step entered a phase; 0 where it did not. What the
  /// peaks count comes after it.
  std::size_t border_peak_bytes = 0;
  std::string memory_status;  // "normal" to "emergency"
  double memory_share = 0;    // of the device's budget that the peak took; 0 without one
  double memory_risk = 0;     // 0 to 1: of running out of it, by the trend of the last steps
  /// Examples of the largest micro-batch that the budget's target has room for, as far as it is
  /// known; 0 without a budget.
  std::int64_t recommended_micro_batch = 0;
  bool memory_leaks = false;  // what lives after a step has grown for many steps in a row
  MemoryUse host_memory;      // of the pool that offloaded tensors are in
  std::optional<double> predicted_loss;  // what the predictor expected `loss` to be
  /// The predictor's confidence in its direction, a probability in [0, 1].
  std::optional<double> confidence;
  /// What predicted, in Predict and where that is decided on, and for how many steps; "" elsewhere.
  std::string predictor;
  std::optional<std::int64_t> planned_steps;
  /// In Full: the gate's estimate of the loss that predictions have saved so far, minus the loss that Full
  /// would have saved at their cost. It does not estimate the run's last loss.
  std::optional<double> advantage;
  /// Exact updates that were pending while the step was computed; absent without asynchronous
  /// updates.
  std::optional<std::int64_t> lag;
  /// ‖predicted − exact‖/‖exact‖ of the late updates that had arrived by its end.
  std::optional<double> prediction_error;
  /// Factor by which a learning-rate finder multiplies the schedule's rate; absent where there is
  /// none. In a step that probed, where the loss was lowest, in updates (0: none lower), and what
  /// that was charged, in Full steps.
  std::optional<double> rate_factor, probe_position, probe_cost;
  /// Cost of the models behind horizon dreamt, in Full steps, within `cost`; absent where there are
  /// none.
  std::optional<double> planning_cost;
  /// Factor of the loss in fp16 after the step, and how often so far a gradient overflowed, so that its
  /// step was skipped or, in Correct, computed again; absent where no phase is in fp16.
  std::optional<double> loss_scale;
  std::int64_t overflows = 0;
  /// The rank for which the others wait, such as "2 on HOST", and its ratio of computing seconds to
  /// the mean of theirs, over the last ten steps or so; "" and absent where none takes a tenth
  /// longer, or they do not tell.
  std::string slowest_rank;
  std::optional<double> slowest_rank_ratio;
  ExpertLoads experts;  // empty where no router sent anything
  /// In Predict: the share of the pairs of a token and its expert that the routers' change since Predict
  /// began has made; absent without routers that learn.
  std::optional<double> routing_flips;
  Decision decision = Decision::kNone;
  /// Of pairs of answers (objective dpo or orpo), means over the step's pairs: rewards of both answers, their difference, and how often it is above 0. The last two also
  /// over all pairs of an evaluation that followed this step.
  std::optional<double> reward_chosen, reward_rejected, reward_margin, preference_accuracy,
      validation_reward_margin, validation_preference_accuracy;
  /// Share of the predicted change that was kept: 1 accepted, in between shrunk, 0 reverted; set
  /// with a decision.
  std::optional<double> kept_fraction;
  /// The gravest that was done about a step that went wrong; kRollBack and its event stand with the
  /// first step after it.
  Recovery recovery = Recovery::kContinue;
  double cost = 0;  // of the step, in Full steps
  /// "" or, in words, why the phase or the weights changed: "accepted: ...", "reverted: ...".
  std::string event;
  bool warns = false;  // the event tells of something that went wrong
  /// Validation loss of the model that a fine-tuning run begins with; in its first record.
  std::optional<double> initial_validation_loss;
  /// Set if an evaluation followed this step.
  std::optional<double> validation_loss;
  /// Validation loss of the mean of the weights, if one is kept.
  std::optional<double> average_validation_loss;

  /// Whether `tokens` counts examples, of one each: of networks that read no text.
  bool counts_examples() const { return effective_batch > 0 && tokens == effective_batch; }
  /// What `tokens` counts, for people.
  const char* unit() const { return counts_examples() ? "examples" : "tokens"; }

  /// The one list of fields, in the order of a line of metrics.jsonl. Calls visit(key, StepFieldUse,
  /// values...) with the field's value in each of `of`: JSON, reading and summaries follow from it.
  template <class Visit, class... Records>
  static void visit_fields(const Visit& visit, Records&... of) {
    const StepFieldUse optional{.required = false};  // a line without it counts, too
    const auto beside = [](const auto&... values) {  // in the lines of steps that have these
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
    visit("peak_bytes", {.fold = Fold::kMost}, of.device_memory.peak...);
    visit("peak_total_bytes", {.fold = Fold::kMost}, of.device_memory.peak_total...);
    visit("border_peak_bytes", optional, of.border_peak_bytes...);
    visit("memory_status", optional, of.memory_status...);
    visit("memory_share", optional, of.memory_share...);
    visit("memory_risk", optional, of.memory_risk...);
    visit("memory_leaks", optional, of.memory_leaks...);
    visit("recommended_micro_batch", optional, of.recommended_micro_batch...);
    visit("host_bytes", {}, of.host_memory.live_total...);
    visit("predicted_loss", {.name = "predicted loss"}, of.predicted_loss...);
    visit("confidence", {}, of.confidence...);
    visit("predictor", beside(of.planned_steps...), of.predictor...);
    visit("planned_steps", beside(of.planned_steps...), of.planned_steps...);
    visit("advantage", beside(of.advantage...), of.advantage...);
    visit("lag", beside(of.lag...), of.lag...);
    visit("prediction_error", beside(of.lag...).named("prediction error"), of.prediction_error...);
    visit("rate_factor", beside(of.rate_factor...), of.rate_factor...);
    visit("probe_position", beside(of.rate_factor...), of.probe_position...);
    visit("probe_cost", beside(of.rate_factor...), of.probe_cost...);
    visit("planning_cost", beside(of.planning_cost...).folded(Fold::kSum), of.planning_cost...);
    visit("loss_scale", beside(of.loss_scale...), of.loss_scale...);
    visit("overflows", beside(of.loss_scale...), of.overflows...);
    visit("slowest_rank", beside(of.slowest_rank_ratio...), of.slowest_rank...);
    visit("slowest_rank_ratio", beside(of.slowest_rank_ratio...), of.slowest_rank_ratio...);
    visit("experts", StepFieldUse{.required = false, .written = (!of.experts.empty() && ...)},
          of.experts...);
    visit("routing_flips", beside(of.routing_flips...), of.routing_flips...);
    visit("reward_chosen", beside(of.reward_chosen...), of.reward_chosen...);
    visit("reward_rejected", beside(of.reward_chosen...), of.reward_rejected...);
    visit("reward_margin", beside(of.reward_chosen...), of.reward_margin...);
    visit("preference_accuracy", beside(of.reward_chosen...), of.preference_accuracy...);
    visit("decision", optional, of.decision...);
    visit("kept_fraction", optional, of.kept_fraction...);
    visit("recovery", optional, of.recovery...);
    visit("cost", optional, of.cost...);
    visit("event", {}, of.event...);
    visit("warns", optional, of.warns...);
    visit("initial_validation_loss",
          beside(of.initial_validation_loss...).named("initial validation loss"),
          of.initial_validation_loss...);
    visit("validation_loss", {.name = "validation loss"}, of.validation_loss...);
    visit("average_validation_loss",
          beside(of.average_validation_loss...).named("average's validation loss"),
          of.average_validation_loss...);
    visit("validation_reward_margin", beside(of.validation_reward_margin...),
          of.validation_reward_margin...);
    visit("validation_preference_accuracy", beside(of.validation_preference_accuracy...),
          of.validation_preference_accuracy...);
  }
};

/// Receives what a run reports. The trainer calls write once per step, in order, from one thread.
class MetricSink {
 public:
  virtual ~MetricSink() = default;
  virtual void write(const StepRecord& record) = 0;
  /// One line of text for a person ("checkpoint saved at step 500"). Numeric sinks ignore it.
  virtual void tell(const std::string& text) = 0;
  /// The run finished or stopped; nothing is written afterwards.
  virtual void finish() = 0;
};

}  // namespace hybrid_trainer
