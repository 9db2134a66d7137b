#pragma once

#include "hybrid_trainer/core/phase.h"
#include "src/compare/comparison_spec.h"
#include "src/compare/student_interval.h"

namespace hybrid_trainer {

/// Result of one run.
struct RunOutcome {
  RunPoint point;
  std::string folder;          // from the comparison's: "runs/muon/600-steps-seed-0"
  std::string failure;         // "" or why it counts as failed
  bool diverged = false;       // it failed since its loss was not finite
  std::string remark;          // "" or what a person should know of it
  std::optional<double> loss;  // on the validation split, after the last step
  std::string losses;          // checksum of the losses of all steps; empty of a program
  std::int64_t steps = 0, tokens = 0;
  double seconds = 0;           // of training alone; by the arm's pace where the spec has one
  std::optional<double> flops;  // the model's, each step by its charged cost
  std::optional<double> cost;   // charged, in Full steps; none of a program
  std::int64_t predicted_steps = 0;
  PredictionCounts predictions;
};

struct ArmRuns {
  std::vector<RunOutcome> trials;  // of the sweep, in order of its values
  std::vector<RunOutcome> runs;    // measured: every budget, and in each every seed
  std::vector<RunOutcome> pace;    // each round
};

/// One quantity over the seeds, in the spec's order.
struct Measured {
  std::vector<std::optional<double>> values;
  std::optional<Interval> interval;  // where each seed has a value
};

struct BudgetResult {
  std::int64_t steps = 0;
  Measured loss, seconds, tokens, flops;
};

/// Seconds of a step: the median round's, and those between which all are.
struct Pace {
  double median = 0, low = 0, high = 0;
};

/// Use of prediction in the runs of the largest budget together.
struct PredictionUse {
  PredictionCounts counts;
  double predicted_share = 0;  // of the steps
  double cost_overhead = 0;    // charged Full steps for a step, less 1; below 0 where it saves
};

struct ArmResult {
  std::string name;
  ArmRuns runs;
  std::optional<double> chosen;         // swept value; none without a sweep or a trial that ended
  std::optional<double> learning_rate;  // of the measured runs
  bool edge_of_sweep = false;           // the best value has none beyond it
  std::optional<Pace> pace;             // where the spec has one and no round failed
  std::vector<BudgetResult> budgets;
  std::int64_t seeds_at_target = 0;
  std::optional<BudgetResult>
      to_target;                       // of each seed's smallest budget that reaches it; where all
                                       // seeds do
  std::optional<Measured> difference;  // final losses less the first arm's, seed by seed; none
                                       // where the largest budgets differ
  std::optional<Measured> time_ratio;  // seconds to the target by the first arm's, seed by seed
  std::optional<PredictionUse> predictions;
  std::string claim, why_no_claim;  // one of them, but in the first arm
  const Measured& loss() const { return budgets.back().loss; }
  /// Trials, measured runs and rounds that failed.
  std::vector<RunOutcome> failed() const;
};

struct ComparisonResult {
  std::vector<ArmResult> arms;
  std::vector<std::string> warnings;
};

/// "muon ended 0.0123 lower than adamw (2 seeds)": what was measured, whether or not it supports a
/// claim; "" where a run has no loss, or the largest budgets differ.
std::string difference_text(const ArmResult& arm, const ArmResult& first);

/// The trial with the smallest loss; none where all failed.
const RunOutcome* best_trial(const std::vector<RunOutcome>& trials);

/// Statistics of the runs, arm by arm in the spec's order. A claim is made where the interval of the
/// difference excludes 0, or, of arms whose largest budgets differ, that of the time ratio 1 (of
/// confidence 1 − 0.05/k for k claims), and both arms have at least three
/// seeds, a swept rate inside its sweep, a decayed learning rate and no failed run but trials that
/// diverged.
ComparisonResult comparison_result(const ComparisonSpec& spec, std::vector<ArmRuns> runs);

/// result.json.
std::string to_json(const ComparisonSpec& spec, const ComparisonResult& result);

/// Explains to people how the figures are computed.
std::string statistics_text(const ComparisonSpec& spec);

}  // namespace hybrid_trainer
