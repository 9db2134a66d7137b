#include "src/compare/spec_checks.h"

#include <algorithm>
#include <set>

#include "hybrid_trainer/config/rank_checks.h"
#include "hybrid_trainer/core/error.h"

namespace hybrid_trainer {
namespace {

constexpr const char* kLearningRate = "optimizer.learning_rate";

/// What does not go with the spec's ranks.
std::vector<std::string> problems_over_ranks(const ComparisonSpec& spec, const ComparisonArm& arm,
                                             const HybridTrainerConfig& config) {
  if (arm.is_program() || (spec.ranks == 1 && !config.phases.runs_ahead_of_ranks())) return {};
  try {
    check_ranks(config, spec.ranks);
    return {};
  } catch (const ConfigError& error) {
    return error.problems();
  }
}

/// Each run's configuration, for each swept value once.
void check_configs(const ComparisonSpec& spec, const ComparisonArm& arm, const std::string& at,
                   SpecProblems& problems) {
  std::set<std::string> told;
  const auto values = arm.sweep.empty()
                          ? std::vector<std::optional<double>>{std::nullopt}
                          : std::vector<std::optional<double>>{arm.sweep.begin(), arm.sweep.end()};
  for (const auto& value : values) {
    try {
      for (const std::int64_t steps : {arm.budgets.front(), spec.pace ? spec.pace->steps : 0}) {
        if (steps == 0) continue;
        const RunPoint point{steps, spec.seeds.front(), value};
        const HybridTrainerConfig config = spec.config_of(arm, point);
        for (const std::string& problem : config.problems()) told.insert(problem);
        for (const std::string& problem : problems_over_ranks(spec, arm, config))
          told.insert(problem);
      }
    } catch (const ConfigError& error) {
      for (const std::string& problem : error.problems()) told.insert("sweep: " + problem);
    }
  }
  for (const std::string& problem : told) problems.note(at, problem);
}

/// Losses of next tokens, and of masked ones at different shares, cannot be compared.
void check_objective(const ComparisonArm& first, const ComparisonArm& arm, const std::string& at,
                     SpecProblems& problems) {
  const HybridTrainerConfig &one = first.config, &other = arm.config;
  if (other.objective != one.objective) {
    problems.note(at, concat("objective: got ", other.objective, ", and ", first.name, " has ",
                             one.objective, ": their losses cannot be compared; want one of them"));
  } else if (other.masks() && other.mask_share != one.mask_share) {
    problems.note(
        at, concat("mask_share: got ", brief(other.mask_share), ", and ", first.name, " has ",
                   brief(one.mask_share), ": their losses cannot be compared; want one share"));
  }
}

}  // namespace

void check_arms(const ComparisonSpec& spec, SpecProblems& problems) {
  std::set<std::string> names;
  for (std::size_t i = 0; i < spec.arms.size(); ++i) {
    const ComparisonArm& arm = spec.arms[i];
    const std::string at = concat("arms[", i, "]");
    if (!arm.name.empty() && !names.insert(arm.name).second)
      problems.note(at + ".name", concat("\"", arm.name, "\" is another arm's name, too"));
    const std::size_t trials = spec.arms.front().sweep.size();
    if (!spec.sweep_key.empty() && arm.sweep.size() != trials)
      problems.note(at + ".sweep", concat("got ", arm.sweep.size(), " values, want ", trials,
                                          " as in the first arm: every arm gets as many trials"));
    if (arm.is_program() && !spec.sweep_key.empty() && spec.sweep_key != kLearningRate)
      problems.note(at, concat("is a program, which is swept by ", kLearningRate, " alone"));
    const auto ours = std::ranges::find_if_not(spec.arms, &ComparisonArm::is_program);
    if (!arm.is_program()) check_objective(*ours, arm, at, problems);
    if (!arm.budgets.empty() && !spec.seeds.empty()) check_configs(spec, arm, at, problems);
  }
}

}  // namespace hybrid_trainer
