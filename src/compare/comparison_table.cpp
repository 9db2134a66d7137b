#include "hybrid_trainer/compare/comparison_table.h"

#include <algorithm>
#include <cmath>
#include <functional>

#include "hybrid_trainer/core/error.h"
#include "hybrid_trainer/core/units.h"

namespace hybrid_trainer {
namespace {

using NumberText = std::function<std::string(double)>;

/// "1.8293 (1.8201 to 1.8385)"; the mean alone of one seed.
std::string with_interval(const std::optional<Interval>& interval, const NumberText& text) {
  if (!interval) return "–";
  const bool is_one = std::isnan(interval->low);
  return is_one ? text(interval->mean)
                : concat(text(interval->mean), " (", text(interval->low), " to ",
                         text(interval->high), ")");
}

std::string two_decimals(double value) { return units::fixed(value, 2); }
std::string four_decimals(double value) { return units::fixed(value, 4); }
std::string seconds_text(double value) { return units::fixed(value, 1) + " s"; }

/// "0.551 s (0.548 to 0.560)"
std::string pace_text(const std::optional<Pace>& pace) {
  if (!pace) return "–";
  const auto text = [](double seconds) { return units::fixed(seconds, 3); };
  return concat(text(pace->median), " s (", text(pace->low), " to ", text(pace->high), ")");
}

/// Columns of the table, which go by what the spec asks for.
class Columns {
 public:
  Columns(const ComparisonSpec& spec, const ComparisonResult& result)
      : masked_(spec.masks()), has_pace_(spec.pace), target_(spec.target_loss) {
    steps_ = result.arms.front().budgets.back().steps;
    for (const ArmResult& arm : result.arms)
      if (arm.budgets.back().steps != steps_) steps_.reset();
  }
  std::string head() const {
    std::string text = concat("| variant | learning rate | ", masked_ ? "masked " : "",
                              steps_ ? concat("validation loss after ", *steps_, " steps | ")
                                     : "validation loss | steps | ",
                              "less the first | ", has_pace_ ? "a step |" : "seconds of those |");
    if (target_)
      text += concat(" seconds to ", brief(*target_), " | tokens to it | time by the first's |");
    const auto columns = std::count(text.begin(), text.end(), '|') - 1;
    text += "\n|";
    for (auto i = columns; i > 0; --i) text += " --- |";
    return text + "\n";
  }
  std::string row(const ArmResult& arm) const {
    const BudgetResult& last = arm.budgets.back();
    std::string text = concat(
        "| ", arm.name, " | ", arm.learning_rate ? brief(*arm.learning_rate) : "–",
        arm.edge_of_sweep ? " (edge)" : "", " | ", with_interval(last.loss.interval, four_decimals),
        steps_ ? " | " : concat(" | ", last.steps, " | "),
        arm.difference ? with_interval(arm.difference->interval, four_decimals) : "–", " | ",
        has_pace_ ? pace_text(arm.pace) : with_interval(last.seconds.interval, seconds_text), " |");
    if (!target_) return text + "\n";
    const auto to_target = [&](const Measured BudgetResult::*what, const NumberText& in) {
      return arm.to_target ? with_interval(((*arm.to_target).*what).interval, in) : "–";
    };
    return concat(text, " ", to_target(&BudgetResult::seconds, seconds_text), " | ",
                  to_target(&BudgetResult::tokens, units::count), " | ",
                  arm.time_ratio ? with_interval(arm.time_ratio->interval, two_decimals) : "–",
                  " |\n");
  }

 private:
  bool masked_, has_pace_;
  std::optional<double> target_;
  std::optional<std::int64_t> steps_;  // of all arms' largest budgets
};

}  // namespace

std::string markdown_table(const ComparisonSpec& spec, const ComparisonResult& result) {
  const Columns columns(spec, result);
  std::string text = columns.head();
  for (const ArmResult& arm : result.arms) text += columns.row(arm);
  text += "\n";
  for (const ArmResult& arm : result.arms) {
    if (!arm.claim.empty()) text += concat("- ", arm.claim, ".\n");
    if (!arm.why_no_claim.empty())
      text += concat("- no claim about ", arm.name, ": ", arm.why_no_claim, ".\n");
  }
  for (const std::string& warning : result.warnings) text += concat("- ", warning, ".\n");
  return text;
}

}  // namespace hybrid_trainer
