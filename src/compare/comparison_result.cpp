#include "src/compare/comparison_result.h"

#include <algorithm>
#include <cmath>

#include "hybrid_trainer/core/error.h"
#include "src/core/messages.h"

namespace hybrid_trainer {

namespace {

constexpr double kConfidence = 0.95;

/// Returns whether the variant is a program whose command lacks the placeholder, such as "{seed}".
bool lacks(const ComparisonVariant& variant, const std::string& place) {
  return variant.is_program() &&
         std::none_of(variant.command.begin(), variant.command.end(), [&](const std::string& part) {
           return part.find(place) != std::string::npos;
         });
}

constexpr std::size_t kClaimSeeds = 3;

std::vector<std::string> claim_objections(const VariantResult& variant,
                                          const ComparisonVariant& from,
                                          const ComparisonSpec& spec) {
  std::vector<std::string> found;
  const auto has_failed = [](const RunOutcome& run) {
    return !run.failure.empty() && !run.diverged;
  };
  const bool has_failed_run =
      std::any_of(variant.runs.trials.begin(), variant.runs.trials.end(), has_failed) ||
      std::any_of(variant.runs.pace.begin(), variant.runs.pace.end(), has_failed);
  if (has_failed_run || !variant.loss().interval)
    found.push_back(concat("a run of ", variant.name, " failed"));
  if (variant.edge_of_sweep && variant.chosen) {
    found.push_back(concat(spec.sweep_key, " ", brief(*variant.chosen), " of ", variant.name,
                           " is at the edge of its sweep; values beyond it may be better"));
  }
  if (!from.is_program() && from.config.schedule.name == "constant")
    found.push_back(concat("the learning rate of ", variant.name, " does not decay"));
  if (lacks(from, "{seed}"))
    found.push_back(concat("the command of ", variant.name, " has no {seed}"));
  for (const RunOutcome& run : variant.runs.runs) {
    if (run.failure.empty() && run.steps != run.point.steps) {
      found.push_back(concat(variant.name, " reported ", run.steps,
                             " steps instead of the requested ", run.point.steps));
      break;
    }
  }
  return found;
}

std::string loss_claim(const VariantResult& variant, const VariantResult& first) {
  const Interval& shown = *variant.difference->interval;
  return concat(variant.name, " ends with a ", shown.mean < 0 ? "lower" : "higher",
                " validation loss than ", first.name, " after ",
                units::grouped(variant.budgets.back().steps), " steps, by ",
                brief(std::abs(shown.mean)), " (95 % interval of the difference ", brief(shown.low),
                " to ", brief(shown.high), ", ", variant.difference->values.size(), " seeds)");
}

std::string time_claim(const VariantResult& variant, const VariantResult& first) {
  const Interval& shown = *variant.time_ratio->interval;
  return concat(variant.name, " reaches the target in ", brief(shown.mean), " of the time that ",
                first.name, " takes (95 % interval ", brief(shown.low), " to ", brief(shown.high),
                ", ", variant.time_ratio->values.size(), " seeds)");
}

bool have_same_bits(const VariantResult& variant, const VariantResult& first) {
  const std::vector<RunOutcome>&a = variant.runs.runs, &b = first.runs.runs;
  return !a.empty() && std::ranges::equal(a, b, [](const RunOutcome& one, const RunOutcome& other) {
    return !one.losses.empty() && one.losses == other.losses;
  });
}

/// Claims that variant number `index` differs from the first, or explains the missing claim.
void add_claim(std::vector<VariantResult>& variants, std::size_t index,
               const ComparisonSpec& spec) {
  const VariantResult& first = variants.front();
  VariantResult& variant = variants[index];
  if (have_same_bits(variant, first)) {
    variant.why_no_claim = concat("all its losses are bit-identical to those of ", first.name,
                                  ", so their settings train the same model");
    return;
  }
  std::vector<std::string> against = claim_objections(first, spec.variants.front(), spec);
  const auto own = claim_objections(variant, spec.variants[index], spec);
  against.insert(against.end(), own.begin(), own.end());
  const bool of_time = !variant.difference;
  if (spec.seeds.size() < kClaimSeeds)
    against.push_back(concat("a claim needs at least ", kClaimSeeds, " seeds"));
  if (spec.sweep_key.empty()) against.emplace_back("no learning rate was swept");
  if (of_time && (!variant.time_ratio || !variant.time_ratio->interval))
    against.emplace_back("the largest budgets differ, and not every run reaches a target");
  if (against.empty()) {
    std::vector<double> values;
    for (const auto& value : of_time ? variant.time_ratio->values : variant.difference->values)
      values.push_back(*value - (of_time ? 1 : 0));
    const Interval interval =
        student_interval(values, 1 - (1 - kConfidence) / static_cast<double>(variants.size() - 1));
    if (interval.low > 0 || interval.high < 0) {
      variant.claim = of_time ? time_claim(variant, first) : loss_claim(variant, first);
      return;
    }
    against.push_back(of_time ? concat("the time may equal that of ", first.name)
                              : concat("the difference from ", first.name, " may be 0"));
    const Interval alone = student_interval(values, kConfidence);
    if (alone.low > 0 || alone.high < 0)
      against.back() += concat(" after dividing the ", brief(100 * (1 - kConfidence)),
                               " % risk of error among ", variants.size() - 1, " differences");
  }
  variant.why_no_claim = join(against, "; ");
}

Measured measured(std::vector<std::optional<double>> values) {
  Measured of_seeds{std::move(values), {}};
  std::vector<double> known;
  for (const auto& value : of_seeds.values) {
    if (value) known.push_back(*value);
  }
  if (!known.empty() && known.size() == of_seeds.values.size())
    of_seeds.interval = student_interval(known, kConfidence);
  return of_seeds;
}

/// Computes the time per step from the timing rounds; the seconds are NaN if a round failed.
void add_step_time(VariantResult& variant) {
  std::vector<double> seconds;
  for (const RunOutcome& round : variant.runs.pace) {
    if (round.failure.empty() && round.steps > 0)
      seconds.push_back(round.seconds / static_cast<double>(round.steps));
  }
  if (!seconds.empty() && seconds.size() == variant.runs.pace.size()) {
    std::sort(seconds.begin(), seconds.end());
    const double median = (seconds[(seconds.size() - 1) / 2] + seconds[seconds.size() / 2]) / 2;
    variant.pace = StepTime{median, seconds.front(), seconds.back()};
  }
  for (auto* runs : {&variant.runs.trials, &variant.runs.runs}) {
    for (RunOutcome& run : *runs)
      run.seconds = variant.pace ? variant.pace->median * static_cast<double>(run.steps) : NAN;
  }
}

BudgetResult budget_result(std::int64_t steps, const std::vector<const RunOutcome*>& runs) {
  std::vector<std::optional<double>> loss, seconds, tokens, flops;
  for (const RunOutcome* run : runs) {
    const bool counts = run != nullptr && run->loss;
    loss.push_back(counts ? run->loss : std::nullopt);
    seconds.push_back(counts && std::isfinite(run->seconds) ? std::optional(run->seconds)
                                                            : std::nullopt);
    tokens.push_back(counts ? std::optional(static_cast<double>(run->tokens)) : std::nullopt);
    flops.push_back(counts ? run->flops : std::nullopt);
  }
  return {steps, measured(loss), measured(seconds), measured(tokens), measured(flops)};
}

/// Returns the first matching run, or null. `runs` are sorted by budget.
const RunOutcome* first_run(const std::vector<RunOutcome>& runs, std::int64_t seed, auto&& wanted) {
  for (const RunOutcome& run : runs) {
    if (run.point.seed == seed && wanted(run)) return &run;
  }
  return nullptr;
}

void add_budgets(VariantResult& variant, const ComparisonVariant& from,
                 const ComparisonSpec& spec) {
  for (const std::int64_t steps : from.budgets) {
    std::vector<const RunOutcome*> of_seeds;
    for (const std::int64_t seed : spec.seeds) {
      of_seeds.push_back(first_run(variant.runs.runs, seed, [&](const RunOutcome& run) {
        return run.point.steps == steps;
      }));
    }
    variant.budgets.push_back(budget_result(steps, of_seeds));
  }
}

void add_target(VariantResult& variant, const ComparisonSpec& spec) {
  if (!spec.target_loss) return;
  std::vector<const RunOutcome*> of_seeds;
  for (const std::int64_t seed : spec.seeds) {
    of_seeds.push_back(first_run(variant.runs.runs, seed, [&](const RunOutcome& run) {
      return run.loss && *run.loss <= *spec.target_loss;
    }));
    variant.seeds_at_target += of_seeds.back() != nullptr ? 1 : 0;
  }
  if (variant.seeds_at_target == static_cast<std::int64_t>(spec.seeds.size()))
    variant.to_target = budget_result(0, of_seeds);
}

void add_predictions(VariantResult& variant) {
  PredictionUse use;
  double steps = 0, predicted = 0, cost = 0;
  for (const RunOutcome& run : variant.runs.runs) {
    if (run.point.steps != variant.budgets.back().steps || !run.cost) continue;
    steps += static_cast<double>(run.steps);
    predicted += static_cast<double>(run.predicted_steps);
    cost += *run.cost;
    use.counts.made += run.predictions.made;
    use.counts.accepted += run.predictions.accepted;
    use.counts.shrunk += run.predictions.shrunk;
    use.counts.reverted += run.predictions.reverted;
  }
  if (steps == 0) return;
  use.predicted_share = predicted / steps;
  use.cost_overhead = cost / steps - 1;
  variant.predictions = use;
}

Measured paired(const Measured& variant, const Measured& first, auto&& combine) {
  std::vector<std::optional<double>> values;
  for (std::size_t i = 0; i < variant.values.size(); ++i) {
    const bool both = variant.values[i] && first.values[i];
    values.push_back(both ? std::optional(combine(*variant.values[i], *first.values[i]))
                          : std::nullopt);
  }
  return measured(values);
}

void compare_with(const VariantResult& first, VariantResult& variant) {
  if (variant.budgets.back().steps == first.budgets.back().steps)
    variant.difference = paired(variant.loss(), first.loss(), std::minus<>());
  if (variant.to_target && first.to_target)
    variant.time_ratio =
        paired(variant.to_target->seconds, first.to_target->seconds, std::divides<>());
}

std::string spread_text(const Interval& shown, std::size_t seeds) {
  if (std::isnan(shown.low)) return concat(" (", seeds, seeds == 1 ? " seed)" : " seeds)");
  return concat(" (95 % interval of the difference ", brief(shown.low), " to ", brief(shown.high),
                ", ", seeds, " seeds)");
}

std::vector<std::string> warnings_of(const ComparisonSpec& spec, const VariantResult& variant,
                                     const ComparisonVariant& from) {
  std::vector<std::string> found;
  for (const RunOutcome& run : variant.failed())
    found.push_back(concat(run.folder, " failed: ", run.failure));
  for (const auto* runs : {&variant.runs.trials, &variant.runs.runs}) {
    for (const RunOutcome& run : *runs) {
      if (!run.remark.empty()) found.push_back(concat(run.folder, ": ", run.remark));
    }
  }
  if (!from.sweep.empty() && lacks(from, "{learning_rate}"))
    found.push_back(concat("the command of ", variant.name,
                           " has no {learning_rate}: all trials of its sweep are the same run"));
  if (spec.target_loss && !variant.to_target)
    found.push_back(concat(variant.name, " reaches the target of ", brief(*spec.target_loss),
                           " with ", variant.seeds_at_target, " of ", spec.seeds.size(), " seeds"));
  return found;
}

}  // namespace

std::vector<RunOutcome> VariantResult::failed() const {
  std::vector<RunOutcome> found;
  for (const auto* outcomes : {&runs.trials, &runs.runs, &runs.pace}) {
    std::copy_if(outcomes->begin(), outcomes->end(), std::back_inserter(found),
                 [](const RunOutcome& run) { return !run.failure.empty(); });
  }
  return found;
}

const RunOutcome* best_trial(const std::vector<RunOutcome>& trials) {
  const RunOutcome* best = nullptr;
  for (const RunOutcome& trial : trials) {
    if (trial.loss && (best == nullptr || *trial.loss < *best->loss)) best = &trial;
  }
  return best;
}

std::string difference_text(const VariantResult& variant, const VariantResult& first) {
  if (!variant.difference || !variant.difference->interval) return "";
  const Interval& shown = *variant.difference->interval;
  return concat(variant.name, " ended with a validation loss ", brief(std::abs(shown.mean)),
                shown.mean < 0 ? " lower than " : " higher than ", first.name,
                spread_text(shown, variant.difference->values.size()));
}

ComparisonResult comparison_result(const ComparisonSpec& spec, std::vector<VariantRuns> runs) {
  ComparisonResult result;
  for (std::size_t i = 0; i < spec.variants.size(); ++i) {
    const ComparisonVariant& from = spec.variants[i];
    VariantResult& variant = result.variants.emplace_back();
    variant.name = from.name;
    variant.runs = std::move(runs[i]);
    if (spec.pace) add_step_time(variant);
    if (const RunOutcome* best = best_trial(variant.runs.trials)) {
      variant.chosen = best->point.value;
      variant.edge_of_sweep =
          best == &variant.runs.trials.front() || best == &variant.runs.trials.back();
    }
    if (variant.chosen || from.sweep.empty())
      variant.learning_rate = spec.config_of(from, {1, 0, variant.chosen}).optimizer.learning_rate;
    add_budgets(variant, from, spec);
    add_target(variant, spec);
    add_predictions(variant);
  }
  const VariantResult& first = result.variants.front();
  for (std::size_t i = 0; i < result.variants.size(); ++i) {
    VariantResult& variant = result.variants[i];
    const auto warnings = warnings_of(spec, variant, spec.variants[i]);
    result.warnings.insert(result.warnings.end(), warnings.begin(), warnings.end());
    if (i == 0) continue;
    compare_with(first, variant);
    add_claim(result.variants, i, spec);
  }
  return result;
}

std::string statistics_text(const ComparisonSpec& spec) {
  std::string text = concat(
      "Each run trains for its whole budget, with a learning rate that decays over it. Runs with "
      "the same seed have the same order of the data and, if they have the same model, the same "
      "initial weights. Intervals are 95 % Student's t intervals over the seeds; differences are "
      "computed per seed, relative to ",
      spec.variants.front().name, "; lower losses are better. ",
      spec.masks()
          ? "Losses are over masked tokens, which are the same in the validation of all runs. "
          : "",
      "A claim needs three seeds, an optimum inside the sweep, no failed run except diverged "
      "trials, and an interval that excludes 0, with the 5 % divided among all claims. Times are "
      "training times without evaluation",
      spec.pace ? concat(", and the time per step is the median of ", spec.pace->rounds,
                         " rounds of runs of ", spec.pace->steps,
                         " steps, in which the variants took turns")
                : std::string(),
      ". FLOPs count the model's forward and backward passes, multiplied by the cost of each step "
      "in Full steps. For the target, each seed uses the run of the smallest budget whose final "
      "validation loss reaches it.");
  if (spec.sweep_key.empty()) return text;
  return text + concat(" ", spec.sweep_key,
                       " was chosen for each variant from the same number of values, with seed ",
                       spec.sweep_seed(),
                       ", which no measured run uses, at the variant's largest budget, and is used "
                       "for all its budgets.");
}

}  // namespace hybrid_trainer
