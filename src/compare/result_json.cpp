#include <boost/json.hpp>

#include "src/compare/comparison_result.h"
#include "src/core/machine.h"
#include "src/files/json.h"
#include "src/run/run_files.h"

namespace hybrid_trainer {

namespace {

/// Returns JSON. Without an interval, mean, low and high are null, because a mean must not hide
/// failed runs.
json::object as_json(const Measured& measured) {
  json::object object{{"mean", nullptr}, {"low", nullptr}, {"high", nullptr}};
  if (measured.interval) {
    object["mean"] = measured.interval->mean;
    object["low"] = measured.interval->low;
    object["high"] = measured.interval->high;
  }
  json::array values;
  for (const auto& value : measured.values) values.push_back(json_or_null(value));
  object["values"] = values;
  return object;
}

json::value known_or_null(const Measured& measured) {
  return measured.interval ? json::value(as_json(measured)) : json::value();
}

json::value as_json(const std::optional<Measured>& measured) {
  return measured ? json::value(as_json(*measured)) : json::value();
}

json::value as_json(const std::optional<StepTime>& time) {
  if (!time) return nullptr;
  return json::object{{"median", time->median}, {"low", time->low}, {"high", time->high}};
}

json::object as_json(const RunOutcome& run) {
  return {{"run", run.folder},
          {"steps", run.point.steps},
          {"seed", run.point.seed},
          {"value", json_or_null(run.point.value)},
          {"final_validation_loss", json_or_null(run.loss)},
          {"failure", json_or_null(run.failure)}};
}

json::array as_json(const std::vector<RunOutcome>& runs) {
  json::array list;
  for (const RunOutcome& run : runs) list.push_back(as_json(run));
  return list;
}

json::value as_json(const std::optional<PredictionUse>& use) {
  if (!use) return nullptr;
  const PredictionCounts& counts = use->counts;
  json::object object{{"made", counts.made},
                      {"accepted", counts.accepted},
                      {"shrunk", counts.shrunk},
                      {"reverted", counts.reverted},
                      {"acceptance_rate", nullptr},
                      {"predicted_share", use->predicted_share},
                      {"charged_cost_overhead", use->cost_overhead}};
  if (counts.made > 0)
    object["acceptance_rate"] =
        static_cast<double>(counts.accepted) / static_cast<double>(counts.made);
  return object;
}

json::object as_json(const VariantResult& variant, const ComparisonSpec& spec) {
  json::array budgets;
  for (const BudgetResult& budget : variant.budgets) {
    budgets.push_back(json::object{{"steps", budget.steps},
                                   {"final_validation_loss", as_json(budget.loss)},
                                   {"seconds", as_json(budget.seconds)},
                                   {"tokens", as_json(budget.tokens)},
                                   {"flops", known_or_null(budget.flops)}});
  }
  const auto to_target = [&](const Measured BudgetResult::*member) {
    return variant.to_target ? known_or_null((*variant.to_target).*member) : json::value();
  };
  json::object object{{"name", variant.name},
                      {"learning_rate", json_or_null(variant.learning_rate)},
                      {"edge_of_sweep", variant.edge_of_sweep},
                      {"final_validation_loss", as_json(variant.loss())},
                      {"difference", as_json(variant.difference)},
                      {"claim", json_or_null(variant.claim)},
                      {"why_no_claim", json_or_null(variant.why_no_claim)},
                      {"seconds_per_step", as_json(variant.pace)},
                      {"seconds_to_target", to_target(&BudgetResult::seconds)},
                      {"tokens_to_target", to_target(&BudgetResult::tokens)},
                      {"flops_to_target", to_target(&BudgetResult::flops)},
                      {"time_ratio", as_json(variant.time_ratio)},
                      {"seeds_at_target", nullptr},
                      {"predictions", as_json(variant.predictions)},
                      {"budgets", budgets},
                      {"sweep", nullptr},
                      {"failed", as_json(variant.failed())},
                      {"runs", as_json(variant.runs.runs)}};
  if (spec.target_loss) object["seeds_at_target"] = variant.seeds_at_target;
  if (!spec.sweep_key.empty()) {
    object["sweep"] = json::object{{"key", spec.sweep_key},
                                   {"chosen", json_or_null(variant.chosen)},
                                   {"seed", spec.sweep_seed()},
                                   {"steps", variant.budgets.back().steps},
                                   {"trials", as_json(variant.runs.trials)}};
  }
  return object;
}

}  // namespace

std::string to_json(const ComparisonSpec& spec, const ComparisonResult& result) {
  json::array variants, warnings(result.warnings.begin(), result.warnings.end());
  std::string claims, why_none;
  for (const VariantResult& variant : result.variants) {
    variants.push_back(as_json(variant, spec));
    if (!variant.claim.empty()) claims += (claims.empty() ? "" : "; ") + variant.claim;
    if (!variant.why_no_claim.empty())
      why_none += (why_none.empty() ? "" : "; ") + variant.name + ": " + variant.why_no_claim;
  }
  if (result.variants.size() == 1) why_none = "only one variant";
  const ProcessorInfo processor = processor_info();
  return pretty_json(json::object{
             {"variants", variants},
             {"target_validation_loss", json_or_null(spec.target_loss)},
             {"claim", json_or_null(claims)},
             {"why_no_claim", json_or_null(why_none)},
             {"warnings", warnings},
             {"budgets", json::array(spec.budgets.begin(), spec.budgets.end())},
             {"seeds", json::array(spec.seeds.begin(), spec.seeds.end())},
             {"sweep_seed", spec.sweep_key.empty() ? json::value() : spec.sweep_seed()},
             {"statistics", statistics_text(spec)},
             {"machine", {{"processor", processor.name}, {"cores", processor.cores}}},
             {"version", project_version()}}) +
         "\n";
}

}  // namespace hybrid_trainer
