#include "phases/method.h"

#include "phases/phase_parts.h"

namespace hybrid_trainer {

void Method::allow(PhaseSignals& signals) {
  const std::int64_t steps = parts_.statistics.steps();
  signals.planned_predict = parts_.recovery.shortened(parts_.config().max_predict_steps, steps);
  signals.may_predict = parts_.may_leave_full() && !parts_.recovery.forces_full(steps);
  signals.trial_overdue = true;  // confidence and gate do not apply
}

void Method::train(const Batch& batch, PhaseOutcome& outcome) {
  outcome.cost += 1;
  update(parts_, parts_.model.wait_for_gradient(batch), outcome);
}

void Method::enter_predict(PhaseOutcome&) { parts_.enter_model(Phase::kPredict); }

void Method::enter_correct(PhaseOutcome& outcome) {
  drain(outcome);
  parts_.enter_model(Phase::kCorrect);
}

void Method::correct(const Batch& batch, PhaseOutcome& outcome) { Method::train(batch, outcome); }

Refusal refusal_of_rounded_gradients() {
  return {.keys = {"memory.gradient_bits"},
          .values = {"32"},
          .why = "that is for the asynchronous optimizer",
          .when = {{"memory.gradient_bits", Kind::kIsOneOf, {"16"}}},
          .wanted = "32, or phases.method asynchronous_optimizer"};
}

Refusal refusal_of_prediction_recoveries() {
  return {.keys = {"divergence.on_caution", "divergence.on_warning", "divergence.on_critical"},
          .kind = Kind::kIsNoneOf,
          .values = {"raise_threshold", "reset_predictor"},
          .why = "there is neither confidence nor predictor",
          .wanted = "another one"};
}

/// Refuses dtypes that need scales: ranks with delayed messages cannot agree on scales or skips.
std::vector<Refusal> refusals_of_scaled_products() {
  const std::string longest = "phases.max_predict_steps", wanted = "fp32 or bf16";
  return {{.keys = {"mixed_precision.predict"},
           .kind = Kind::kIsNoneOf,
           .values = {"fp16", "fp8"},
           .why = "in Predict ranks agree on no scale of its numbers",
           .when = {{longest, Kind::kIsMoreThan, {"0"}}},
           .wanted = wanted},
          {.keys = {"mixed_precision.predict"},
           .kind = Kind::kIsNoneOf,
           .values = {"auto"},
           .why = "it follows mixed_precision.full, and in Predict ranks agree on no scale of its "
                  "numbers",
           .when = {{longest, Kind::kIsMoreThan, {"0"}},
                    {"mixed_precision.full", Kind::kIsOneOf, {"fp16", "fp8"}}},
           .wanted = wanted}};
}

std::vector<Refusal> refusals_ahead_of_ranks() {
  const char* const whole = "each rank updates its weights and state where they are";
  std::vector<Refusal> rows{
      {{"memory.optimizer_state", "memory.weights"}, Kind::kIsOneOf, {"device"}, whole},
      {{"memory.device_map"}, Kind::kIsOneOf, {""}, whole},
      {{"memory.gradients"}, Kind::kIsOneOf, {"keep"}, "gradients are sent as a whole"},
      {{"optimizer.paged"}, Kind::kIsOneOf, {"false"}, whole},
      {{"optimizer.slow_momentum"}, Kind::kIsOneOf, {"0"}, "updates are exact only later"},
      {{"training.average_weights"}, Kind::kIsOneOf, {"0"}, "weights are exact only later"},
      {{"optimizer.name", "optimizer.groups[].name"},
       Kind::kIsOneOf,
       {"adamw", "muon"},
       "no other optimizer supports it"},
      {{"optimizer.state_bits", "optimizer.groups[].state_bits"},
       Kind::kIsOneOf,
       {"32"},
       "the state has 32 bits"},
      refusal_of_rounded_gradients(),
      refusal_of_prediction_recoveries(),
      {.keys = {"phases.method"},
       .kind = Kind::kIsNoneOf,
       .values = {"asynchronous_gradients", "local_sgd"},
       .why = "there is one rank alone",
       .when = {{"ranks", Kind::kIsOneOf, {"1"}}},
       .wanted = "skip_backward, or more ranks: --ranks N, or of a plan --devices N"},
  };
  const std::vector<Refusal> scaled = refusals_of_scaled_products();
  rows.insert(rows.end(), scaled.begin(), scaled.end());
  return rows;
}

}  // namespace hybrid_trainer
