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
          .why = "16 bits require the asynchronous optimizer",
          .when = {{"memory.gradient_bits", Kind::kIsOneOf, {"16"}}},
          .wanted = "32, or phases.method asynchronous_optimizer"};
}

Refusal refusal_of_prediction_recoveries() {
  return {.keys = {"divergence.on_caution", "divergence.on_warning", "divergence.on_critical"},
          .values = {"raise_threshold", "reset_predictor"},
          .why = "this method has no confidence and no predictor",
          .kind = Kind::kIsNoneOf,
          .wanted = "another action"};
}

/// Rejects dtypes with scales, because ranks with delayed messages cannot agree on them.
std::vector<Refusal> refusals_of_scaled_products() {
  const std::string longest = "phases.max_predict_steps", wanted = "fp32 or bf16";
  return {{.keys = {"mixed_precision.predict"},
           .values = {"fp16", "fp8"},
           .why = "ranks do not share the scales of fp16 and fp8 in Predict",
           .kind = Kind::kIsNoneOf,
           .when = {{longest, Kind::kIsMoreThan, {"0"}}},
           .wanted = wanted},
          {.keys = {"mixed_precision.predict"},
           .values = {"auto"},
           .why = "Predict uses the precision of Full, and ranks do not share the scales of fp16 "
                  "and fp8 in Predict",
           .kind = Kind::kIsNoneOf,
           .when = {{longest, Kind::kIsMoreThan, {"0"}},
                    {"mixed_precision.full", Kind::kIsOneOf, {"fp16", "fp8"}}},
           .wanted = wanted}};
}

std::vector<Refusal> refusals_ahead_of_ranks() {
  const char* const whole = "each rank updates its weights and state on the device";
  std::vector<Refusal> rows{
      {{"memory.optimizer_state", "memory.weights"}, {"device"}, whole},
      {{"memory.device_map"}, {""}, whole},
      {{"memory.gradients"}, {"keep"}, "ranks send complete gradients"},
      {{"optimizer.paged"}, {"false"}, whole},
      {{"optimizer.slow_momentum"}, {"0"}, "updates become exact only after the delay"},
      {{"training.average_weights"}, {"0"}, "weights become exact only after the delay"},
      {{"optimizer.name", "optimizer.groups[].name"},
       {"adamw", "muon"},
       "only adamw and muon support this method"},
      {{"optimizer.state_bits", "optimizer.groups[].state_bits"},
       {"32"},
       "the state always has 32 bits"},
      refusal_of_rounded_gradients(),
      refusal_of_prediction_recoveries(),
      {.keys = {"phases.method"},
       .values = {"asynchronous_gradients", "local_sgd"},
       .why = "there is only one rank",
       .kind = Kind::kIsNoneOf,
       .when = {{"ranks", Kind::kIsOneOf, {"1"}}},
       .wanted = "skip_backward, or more ranks: --ranks N, or for a plan --devices N"},
  };
  const std::vector<Refusal> scaled = refusals_of_scaled_products();
  rows.insert(rows.end(), scaled.begin(), scaled.end());
  return rows;
}

}  // namespace hybrid_trainer
