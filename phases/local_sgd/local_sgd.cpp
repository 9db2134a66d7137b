#include "phases/method.h"
#include "phases/phase_parts.h"

namespace hybrid_trainer {

namespace {

/// Local SGD: in Predict each rank trains on by itself. What it tells of a step is its own, and the
/// monitor judges none of them.
class LocalSgdMethod final : public Method {
 public:
  using Method::Method;
  static const std::vector<Refusal>& refusals();
  static std::string text(const PhaseConfig& config);

  void predict(const Batch& batch, PhaseOutcome& outcome) override;
  void enter_correct(PhaseOutcome& outcome) override {
    drain(outcome);
    parts_.enter_model(Phase::kCorrect);
  }
  void drain(PhaseOutcome& outcome) override {
    tell_skipped(parts_.model.support().local->wait_for_exact_weights(), outcome);
  }

 private:
  void tell_skipped(const LocalStep& step, PhaseOutcome& outcome);
};

const std::vector<Refusal>& LocalSgdMethod::refusals() {
  static const std::vector<Refusal> rows = [] {
    std::vector<Refusal> all = refusals_ahead_of_ranks();
    const std::string steps = "phases.local_sgd.steps", longest = "phases.max_predict_steps";
    const std::vector<Refusal> own{
        {{"distributed.zero"}, Kind::kIsOneOf, {"0"}, "each rank has all of the state"},
        {{steps},
         Kind::kIsMoreThan,
         {"phases.local_sgd.delay"},
         "an exchange has to arrive before the next one begins"},
        {.keys = {steps},
         .kind = Kind::kIsLessThan,
         .values = {longest},
         .why = "Predict would end before the first exchange",
         .when = {{longest, Kind::kIsMoreThan, {"0"}}}},
        {{"phases.local_sgd.fragments"},
         Kind::kIsAtMost,
         {steps},
         "each fragment has a step of its own to begin at"},
        {{"phases.local_sgd.exchange_bits"},
         Kind::kIsOneOf,
         {"32", "8", "4"},
         "an exchange has no other form"},
    };
    all.insert(all.end(), own.begin(), own.end());
    return all;
  }();
  return rows;
}

std::string LocalSgdMethod::text(const PhaseConfig& config) {
  const LocalSgdConfig& group = config.local_sgd;
  std::string sent;
  if (group.fragments > 1) sent += concat(" in ", group.fragments, " fragments");
  if (group.exchange_bits < 32) sent += concat(" by ", group.exchange_bits, " bits a weight");
  return concat(", each rank by itself for ", group.steps, " steps (local SGD), exchanges ",
                group.delay, group.delay == 1 ? " step" : " steps", " late",
                sent.empty() ? "" : "; sent" + sent);
}

void LocalSgdMethod::predict(const Batch& batch, PhaseOutcome& outcome) {
  const LocalStep step = parts_.model.support().local->wait_for_step(batch);
  outcome.cost += 1;
  outcome.loss = step.own.loss;
  outcome.gradient_norm = step.own.norm;
  outcome.lag = step.since_exchange;
  outcome.updates = step.own.finite() ? 1 : 0;
  tell_skipped(step, outcome);
}

/// Steps that ranks made by themselves and that made no update. Throws Diverged where all of them are
/// such.
void LocalSgdMethod::tell_skipped(const LocalStep& step, PhaseOutcome& outcome) {
  if (step.skipped == 0) return;
  parts_.statistics.skipped_updates += step.skipped;
  outcome.warns = true;
  const std::string text =
      concat(step.skipped, " of ", step.steps,
             " steps that ranks made by themselves had a loss or gradient that is not finite");
  tell(outcome, text + ", and made no update");
  if (step.skipped < step.steps) return;
  outcome.recovery = Recovery::kAbort;
  throw Diverged(concat("training diverged: ", text,
                        "; the weights are those of the last good update; lower "
                        "optimizer.learning_rate or look into the data"));
}

}  // namespace

MethodRow local_sgd_row() { return row_of<LocalSgdMethod>("local_sgd"); }

}  // namespace hybrid_trainer
