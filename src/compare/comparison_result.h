#pragma once

#include "hybrid_trainer/core/phase.h"
#include "src/compare/comparison_spec.h"
#include "src/run/rank_statistics.h"

namespace hybrid_trainer {

struct RunOutcome {
  RunPoint point;
  std::string folder;          // relative to the comparison's: "runs/muon/600-steps-seed-0"
  std::string failure;         // "" or the reason of the failure
  bool diverged = false;       // failed because the loss was not finite
  std::string remark;          // "" or a note for the user
  std::optional<double> loss;  // validation loss after the last step
  std::string losses;          // checksum of the losses of all steps; empty for a program
  std::int64_t steps = 0, tokens = 0;
  double seconds = 0;  // training only; from the variant's time per step if the spec measures it
  std::optional<double> flops;  // FLOPs of all steps, each at its charged cost
  std::optional<double> cost;   // charged cost in Full steps; not set for a program
  std::int64_t predicted_steps = 0;
  PredictionCounts predictions;
};

struct VariantRuns {
  std::vector<RunOutcome> trials;  // trials of the sweep, in the order of its values
  std::vector<RunOutcome> runs;    // measured runs: every seed for every budget
  std::vector<RunOutcome> pace;    // timing run of each round
};

/// Values of a quantity by seed, in the spec's order.
struct Measured {
  std::vector<std::optional<double>> values;
  std::optional<Interval> interval;  // set if each seed has a value
};

struct BudgetResult {
  std::int64_t steps = 0;
  Measured loss, seconds, tokens, flops;
};

/// Seconds per step: median, lowest and highest of the rounds.
struct StepTime {
  double median = 0, low = 0, high = 0;
};

/// Use of prediction in all runs of the largest budget.
struct PredictionUse {
  PredictionCounts counts;
  double predicted_share = 0;  // share of steps that were predicted
  double cost_overhead = 0;    // charged Full steps per step, minus 1; negative if prediction saves
};

struct VariantResult {
  std::string name;
  VariantRuns runs;
  /// Best value of the sweep; not set if there is no sweep or no finished trial.
  std::optional<double> chosen;
  std::optional<double> learning_rate;  // learning rate of the measured runs
  bool edge_of_sweep = false;           // the best value is the lowest or highest
  std::optional<StepTime> pace;         // if measured and no round failed
  std::vector<BudgetResult> budgets;
  std::int64_t seeds_at_target = 0;
  /// Smallest budget with which each seed reaches the target; not set unless all seeds do.
  std::optional<BudgetResult> to_target;
  std::optional<Measured> difference;  // loss minus the first's, by seed; none if budgets differ
  std::optional<Measured> time_ratio;  // seconds to the target, divided by the first variant's
  std::optional<PredictionUse> predictions;
  std::string claim, why_no_claim;  // exactly one is set, except in the first variant
  const Measured& loss() const { return budgets.back().loss; }
  std::vector<RunOutcome> failed() const;
};

struct ComparisonResult {
  std::vector<VariantResult> variants;
  std::vector<std::string> warnings;
};

/// Returns "muon ended with a validation loss 0.0123 lower than adamw (2 seeds)", whether or not it
/// supports a claim; "" if a run has no loss or the largest budgets differ.
std::string difference_text(const VariantResult& variant, const VariantResult& first);

const RunOutcome* best_trial(const std::vector<RunOutcome>& trials);

/// Computes the statistics of the runs. A claim requires that the interval of the difference
/// excludes 0 or, if the largest budgets differ, that the time ratio's interval excludes 1
/// (confidence 1 − 0.05/k for k claims). Both variants need at least three seeds, a learning rate
/// chosen by a sweep and not at its edge, a schedule that decays the rate, and no failed runs;
/// sweep trials may diverge.
ComparisonResult comparison_result(const ComparisonSpec& spec, std::vector<VariantRuns> runs);

std::string to_json(const ComparisonSpec& spec, const ComparisonResult& result);

/// Explains how the figures are computed, for users.
std::string statistics_text(const ComparisonSpec& spec);

}  // namespace hybrid_trainer
