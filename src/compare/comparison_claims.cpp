#include "src/compare/comparison_claims.h"

#include <algorithm>
#include <cmath>

#include "hybrid_trainer/core/error.h"
#include "hybrid_trainer/core/units.h"

namespace hybrid_trainer {

bool lacks(const ComparisonArm& arm, const std::string& place) {
  return arm.is_program() &&
         std::none_of(arm.command.begin(), arm.command.end(), [&](const std::string& part) {
           return part.find(place) != std::string::npos;
         });
}

namespace {

constexpr std::size_t kSeedsOfAClaim = 3;

/// Why figures of the arm support no claim.
std::vector<std::string> doubts(const ArmResult& arm, const ComparisonArm& from,
                                const ComparisonSpec& spec) {
  std::vector<std::string> found;
  const auto spoils = [](const RunOutcome& run) { return !run.failure.empty() && !run.diverged; };
  const bool spoilt = std::any_of(arm.runs.trials.begin(), arm.runs.trials.end(), spoils) ||
                      std::any_of(arm.runs.pace.begin(), arm.runs.pace.end(), spoils);
  if (spoilt || !arm.loss().interval) found.push_back(concat("a run of ", arm.name, " failed"));
  if (arm.edge_of_sweep && arm.chosen) {
    found.push_back(concat(spec.sweep_key, " ", brief(*arm.chosen), " of ", arm.name,
                           " is the edge of its sweep, and what lies beyond may be better"));
  }
  if (!from.is_program() && from.config.schedule.name == "constant")
    found.push_back(concat("the learning rate of ", arm.name, " does not decay"));
  if (lacks(from, "{seed}"))
    found.push_back(concat("the command of ", arm.name, " takes no {seed}"));
  for (const RunOutcome& run : arm.runs.runs) {
    if (run.failure.empty() && run.steps != run.point.steps) {
      found.push_back(concat(arm.name, " reported ", run.steps, " steps where ", run.point.steps,
                             " were asked for"));
      break;
    }
  }
  return found;
}

std::string loss_claim(const ArmResult& arm, const ArmResult& first) {
  const Interval& shown = *arm.difference->interval;
  return concat(arm.name, " ends with a ", shown.mean < 0 ? "lower" : "higher",
                " validation loss than ", first.name, " after ",
                units::grouped(arm.budgets.back().steps), " steps, by ",
                brief(std::abs(shown.mean)), " (95 % interval of the difference ", brief(shown.low),
                " to ", brief(shown.high), ", ", arm.difference->values.size(), " seeds)");
}

std::string time_claim(const ArmResult& arm, const ArmResult& first) {
  const Interval& shown = *arm.time_ratio->interval;
  return concat(arm.name, " reaches the target in ", brief(shown.mean), " of the time that ",
                first.name, " takes (95 % interval ", brief(shown.low), " to ", brief(shown.high),
                ", ", arm.time_ratio->values.size(), " seeds)");
}

/// Whether all runs of both had the same losses, to the last bit.
bool have_same_bits(const ArmResult& arm, const ArmResult& first) {
  const std::vector<RunOutcome>&a = arm.runs.runs, &b = first.runs.runs;
  return !a.empty() && std::ranges::equal(a, b, [](const RunOutcome& one, const RunOutcome& other) {
    return !one.losses.empty() && one.losses == other.losses;
  });
}

}  // namespace

void add_claim(std::vector<ArmResult>& arms, std::size_t index, const ComparisonSpec& spec) {
  const ArmResult& first = arms.front();
  ArmResult& arm = arms[index];
  if (have_same_bits(arm, first)) {
    arm.why_no_claim = concat("each of its losses has the bits of that of ", first.name,
                              ", so their difference has no effect on training");
    return;
  }
  std::vector<std::string> against = doubts(first, spec.arms.front(), spec);
  const auto own = doubts(arm, spec.arms[index], spec);
  against.insert(against.end(), own.begin(), own.end());
  const bool of_time = !arm.difference;
  if (spec.seeds.size() < kSeedsOfAClaim)
    against.push_back(concat("a claim needs at least ", kSeedsOfAClaim, " seeds"));
  if (spec.sweep_key.empty()) against.emplace_back("no learning rate was swept");
  if (of_time && (!arm.time_ratio || !arm.time_ratio->interval))
    against.emplace_back("their largest budgets differ, and not both always reach a target");
  if (against.empty()) {
    std::vector<double> values;
    for (const auto& value : of_time ? arm.time_ratio->values : arm.difference->values)
      values.push_back(*value - (of_time ? 1 : 0));
    const Interval interval =
        student_interval(values, 1 - (1 - kConfidence) / static_cast<double>(arms.size() - 1));
    if (interval.low > 0 || interval.high < 0) {
      arm.claim = of_time ? time_claim(arm, first) : loss_claim(arm, first);
      return;
    }
    against.push_back(of_time ? concat("the time may be that of ", first.name)
                              : concat("the difference from ", first.name, " may be 0"));
    const Interval alone = student_interval(values, kConfidence);
    if (alone.low > 0 || alone.high < 0) {
      against.back() += concat(", with the ", brief(100 * (1 - kConfidence)), " % divided among ",
                               arms.size() - 1, " differences");
    }
  }
  arm.why_no_claim = join(against, "; ");
}

}  // namespace hybrid_trainer
