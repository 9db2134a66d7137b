#include "hybrid_trainer/files/pretty_json.h"
#include "hybrid_trainer/observability/run_summary.h"
#include "src/observability/step_record_json.h"

namespace hybrid_trainer {
namespace json = boost::json;
namespace {

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
  const auto text_or_null = [](const std::string& text) {
    return text.empty() ? json::value() : json::value(text);
  };
  json::object object{{"ranks", distributed.ranks},
                      {"zero", distributed.zero},
                      {"backend", distributed.backend},
                      {"bytes_sent", distributed.bytes_sent},
                      {"exposed_seconds", json_or_null(distributed.exposed_seconds)},
                      {"imitated_link", text_or_null(distributed.imitated_link)},
                      {"lost_rank", text_or_null(distributed.lost_rank)}};
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
