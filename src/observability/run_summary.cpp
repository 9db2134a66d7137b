#include "hybrid_trainer/observability/run_summary.h"

#include <algorithm>
#include <type_traits>

#include "src/files/json.h"
#include "src/files/json_lookup.h"
#include "src/observability/step_record_json.h"

namespace hybrid_trainer {

namespace {

/// Adds a step's field to a sum of steps.
struct FoldedField {
  template <class Value>
  void operator()(const char*, const StepFieldUse& use, Value& sum, const Value& next) const {
    if constexpr (std::is_arithmetic_v<Value>) {
      sum = use.fold == Fold::kSum   ? static_cast<Value>(sum + next)
            : use.fold == Fold::kMax ? std::max(sum, next)
                                     : next;
    } else if constexpr (std::is_same_v<Value, std::optional<double>>) {
      if (next) sum = use.fold == Fold::kSum ? sum.value_or(0) + *next : *next;
    } else if constexpr (std::is_same_v<Value, std::array<std::size_t, kMemoryKinds>>) {
      for (std::size_t kind = 0; kind < kMemoryKinds; ++kind)
        (*this)("", use, sum[kind], next[kind]);
    } else {
      sum = next;
    }
  }
};

json::array savings_json(const std::vector<MemorySaving>& savings) {
  json::array list;
  for (const MemorySaving& saving : savings) {
    json::object phases;
    for (std::size_t i = 0; i < kPhases; ++i)
      phases.emplace(name_of(static_cast<Phase>(i)), saving.by_phase[i]);
    list.push_back(json::object{{"option", saving.option},
                                {"value", saving.value},
                                {"device_bytes", saving.device_bytes},
                                {"phases", phases}});
  }
  return list;
}

json::object speculation_json(const RunSummary::Speculation& speculation) {
  return {{"steps", speculation.steps},
          {"waits", speculation.waits},
          {"mean_prediction_error", json_or_null(speculation.mean_error())},
          {"device_bytes", speculation.device_bytes},
          {"worker_seconds", speculation.worker_seconds},
          {"wait_seconds", speculation.wait_seconds}};
}

json::object rate_finder_json(const RunSummary::RateFinder& finder) {
  return {{"factor", finder.factor},
          {"learning_rate", finder.learning_rate},
          {"probes", finder.probes},
          {"cost", finder.cost}};
}

json::object recoveries_json(const RunSummary& summary) {
  json::object recoveries;
  for (const Recovery kind : kAllRecoveries) {
    if (kind != Recovery::kContinue) recoveries.emplace(name_of(kind), summary.count(kind));
  }
  recoveries["rolled_back_steps"] = summary.rolled_back_steps;
  recoveries["learning_rate_factor"] = summary.learning_rate_factor;
  return recoveries;
}

json::object phases_json(const RunSummary& summary) {
  json::object phases;
  for (const Phase phase : kAllPhases) {
    const PhaseUse& use = summary.phase(phase);
    phases.emplace(name_of(phase),
                   json::object{{"steps", use.steps},
                                {"seconds", use.sum.seconds},
                                {"tokens", use.sum.tokens},
                                {"cost", use.cost},
                                {"peak_bytes", use.peak_bytes},
                                {"peak_bytes_by_kind", json_of(use.sum.device_memory.peak)},
                                {"precision", use.precision}});
  }
  return phases;
}

json::object predictions_json(const RunSummary& summary) {
  json::object predictions{{"made", summary.predictions.made},
                           {"accepted", summary.predictions.accepted},
                           {"shrunk", summary.predictions.shrunk},
                           {"reverted", summary.predictions.reverted}};
  if (summary.sum.planning_cost) predictions["planning_cost"] = *summary.sum.planning_cost;
  return predictions;
}

json::object distributed_json(const RunSummary::Distributed& distributed) {
  json::object object{{"ranks", distributed.ranks},
                      {"zero", distributed.zero},
                      {"backend", distributed.backend},
                      {"bytes_sent", distributed.bytes_sent},
                      {"exposed_seconds", json_or_null(distributed.exposed_seconds)},
                      {"simulated_link", json_or_null(distributed.simulated_link)},
                      {"lost_rank", json_or_null(distributed.lost_rank)}};
  if (distributed.slowest_rank_ratio) {
    object["slowest_rank"] = distributed.slowest_rank;
    object["slowest_rank_ratio"] = *distributed.slowest_rank_ratio;
  }
  return object;
}

json::object memory_json(const RunSummary& summary) {
  return {{"device_peak_bytes", summary.device_peak_bytes},
          {"host_peak_bytes", summary.host_peak_bytes},
          {"offload",
           {{"times", summary.offload.times},
            {"bytes", summary.offload.bytes},
            {"restore_seconds", summary.offload.restore_seconds},
            {"waited_seconds", summary.offload.waited_seconds}}},
          {"host_peak_bytes_by_kind", json_of(summary.host_peak_by_kind)},
          {"file_peak_bytes_by_kind", json_of(summary.file_peak_by_kind)},
          {"recommended_micro_batch", summary.sum.recommended_micro_batch},
          {"simulated_savings", savings_json(summary.savings)}};
}

}  // namespace

void RunSummary::add(const StepRecord& record) {
  steps = std::max(steps + 1, record.step);  // counts steps even if their records are missing
  const Phase last_phase = sum.phase;
  StepRecord::visit_fields(FoldedField(), sum, record);
  counts_examples = record.counts_examples();
  final_train_loss = record.loss;
  if (record.validation_loss) final_validation_loss = record.validation_loss;
  if (record.average_validation_loss)
    final_average_validation_loss = record.average_validation_loss;
  if (record.lag) add_delayed_step(record);
  if (record.rate_factor) add_probe(record);
  ++count(record.recovery);
  PhaseUse& left = phase(last_phase);
  if (left.steps > 0) left.peak_bytes = std::max(left.peak_bytes, record.phase_entry_peak_bytes);
  PhaseUse& use = phase(record.phase);
  ++use.steps;
  StepRecord::visit_fields(FoldedField(), use.sum, record);
  use.cost += record.cost;
  use.peak_bytes = std::max(use.peak_bytes, record.device_memory.peak_total);
}

double RunSummary::prediction_cost() const {
  double cost = learning_rate_finder ? -learning_rate_finder->cost : 0;
  for (const PhaseUse& use : phases) cost += use.cost - static_cast<double>(use.steps);
  return cost;
}

void RunSummary::add_delayed_step(const StepRecord& record) {
  if (!speculation) speculation = Speculation{};
  if (*record.lag > 0) ++speculation->steps;
  if (record.prediction_error) {
    ++speculation->errors;
    speculation->error_sum += *record.prediction_error;
  }
  if (record.phase != Phase::kPredict) return;
  std::size_t bytes = 0;
  for (const MemoryKind kind :
       {MemoryKind::kOptimizerState, MemoryKind::kMasterWeights, MemoryKind::kPredictor})
    bytes += record.device_memory.peak[static_cast<std::size_t>(kind)];
  speculation->device_bytes = std::max(speculation->device_bytes, bytes);
}

void RunSummary::add_probe(const StepRecord& record) {
  if (!learning_rate_finder) learning_rate_finder = RateFinder{};
  RateFinder& finder = *learning_rate_finder;
  finder.factor = *record.rate_factor;
  finder.learning_rate = std::max(finder.learning_rate, record.learning_rate);
  if (!record.probe_position) return;
  ++finder.probes;
  finder.cost += record.probe_cost.value_or(0);
}

PredictionCounts prediction_counts(const json::value& summary) {
  return {.made = count_at(summary, "/predictions/made"),
          .accepted = count_at(summary, "/predictions/accepted"),
          .shrunk = count_at(summary, "/predictions/shrunk"),
          .reverted = count_at(summary, "/predictions/reverted")};
}

std::string to_json(const RunSummary& summary) {
  json::object object{{"final_train_loss", json_or_null(summary.final_train_loss)},
                      {"final_validation_loss", json_or_null(summary.final_validation_loss)}};
  if (summary.final_average_validation_loss)
    object["final_average_validation_loss"] = *summary.final_average_validation_loss;
  if (summary.best)
    object["best"] = json::object{{"step", summary.best->step},
                                  {"validation_loss", summary.best->validation_loss}};
  if (summary.stopped_early) object["stopped_early"] = true;
  object["steps"] = summary.steps;
  object["tokens"] = summary.sum.tokens;
  object["seconds"] = summary.sum.seconds;
  object["overhead_seconds"] = summary.sum.overhead_seconds;
  if (summary.sum.initial_validation_loss)
    object["initial_validation_loss"] = *summary.sum.initial_validation_loss;
  object["phases"] = phases_json(summary);
  object["predictions"] = predictions_json(summary);
  object["recoveries"] = recoveries_json(summary);
  if (summary.sum.loss_scale) {
    object["fp16"] =
        json::object{{"loss_scale", *summary.sum.loss_scale}, {"overflows", summary.sum.overflows}};
  }
  if (summary.speculation) object["speculation"] = speculation_json(*summary.speculation);
  if (summary.learning_rate_finder)
    object["learning_rate_finder"] = rate_finder_json(*summary.learning_rate_finder);
  if (summary.distributed) object["distributed"] = distributed_json(*summary.distributed);
  object["memory"] = memory_json(summary);
  object["parameters"] = summary.parameters;
  object["effective_batch"] = summary.effective_batch;
  if (summary.masked) object["objective"] = "masked";
  object["end"] = summary.end;
  object["command"] = summary.command;
  if (!summary.first_command.empty()) object["first_command"] = summary.first_command;
  object["version"] = summary.version;
  return json_line(object) + "\n";
}

}  // namespace hybrid_trainer
