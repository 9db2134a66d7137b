#include "hybrid_trainer/compare/comparison_table.h"

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

std::string four_decimals(double value) { return units::fixed(value, 4); }
std::string seconds_text(double value) { return units::fixed(value, 1) + " s"; }

std::string row_of(const ArmResult& arm, bool has_target) {
  const BudgetResult& last = arm.budgets.back();
  std::string row = concat(
      "| ", arm.name, " | ", arm.learning_rate ? brief(*arm.learning_rate) : "–",
      arm.edge_of_sweep ? " (edge)" : "", " | ", with_interval(last.loss.interval, four_decimals),
      " | ", arm.difference ? with_interval(arm.difference->interval, four_decimals) : "–", " | ",
      with_interval(last.seconds.interval, seconds_text), " |");
  if (!has_target) return row + "\n";
  const auto to_target = [&](const Measured BudgetResult::*what, const NumberText& text) {
    return arm.to_target ? with_interval(((*arm.to_target).*what).interval, text) : "–";
  };
  return concat(row, " ", to_target(&BudgetResult::seconds, seconds_text), " | ",
                to_target(&BudgetResult::tokens, units::count), " |\n");
}

}  // namespace

std::string markdown_table(const ComparisonSpec& spec, const ComparisonResult& result) {
  const bool has_target = spec.target_loss.has_value();
  const std::string steps = concat(result.arms.front().budgets.back().steps, " steps");
  std::string text =
      concat("| arm | learning rate | validation loss after ", steps, " | less the first | ",
             "seconds of those |",
             has_target ? concat(" seconds to ", brief(*spec.target_loss), " | tokens to it |")
                        : std::string(),
             "\n| --- | --- | --- | --- | --- |", has_target ? " --- | --- |" : "", "\n");
  for (const ArmResult& arm : result.arms) text += row_of(arm, has_target);
  text += "\n";
  for (const ArmResult& arm : result.arms) {
    if (!arm.claim.empty()) text += concat("- ", arm.claim, "\n");
    if (!arm.why_no_claim.empty())
      text += concat("- no claim about ", arm.name, ": ", arm.why_no_claim, "\n");
  }
  for (const std::string& warning : result.warnings) text += concat("- ", warning, "\n");
  return text;
}

}  // namespace hybrid_trainer
