#include "hybrid_trainer/observability/run_summary.h"
#include "src/observability/step_record_json.h"

namespace hybrid_trainer {
namespace {

void write_savings(JsonWriter& out, const std::vector<MemorySaving>& savings) {
  out.begin_array("simulated_savings");
  for (const MemorySaving& saving : savings) {
    out.begin_object();
    out.string("option", saving.option);
    out.string("value", saving.value);
    out.number("device_bytes", saving.device_bytes);
    out.begin_object("phases");
    for (std::size_t i = 0; i < kPhases; ++i)
      out.number(name_of(static_cast<Phase>(i)), saving.by_phase[i]);
    out.end_object();
    out.end_object();
  }
  out.end_array();
}

void write_speculation(JsonWriter& out, const RunSummary::Speculation& speculation) {
  out.begin_object("speculation");
  out.number("steps", speculation.steps);
  out.number("waits", speculation.waits);
  out.number("mean_prediction_error", speculation.mean_error());
  out.number("device_bytes", speculation.device_bytes);
  out.number("worker_seconds", speculation.worker_seconds);
  out.number("wait_seconds", speculation.wait_seconds);
  out.end_object();
}

void write_rate_finder(JsonWriter& out, const RunSummary::RateFinder& finder) {
  out.begin_object("learning_rate_finder");
  out.number("factor", finder.factor);
  out.number("learning_rate", finder.learning_rate);
  out.number("probes", finder.probes);
  out.number("cost", finder.cost);
  out.end_object();
}

void write_recoveries(JsonWriter& out, const RunSummary& summary) {
  out.begin_object("recoveries");
  for (const Recovery kind : kAllRecoveries) {
    if (kind != Recovery::kContinue) out.number(name_of(kind), summary.count(kind));
  }
  out.number("rolled_back_steps", summary.rolled_back_steps);
  out.number("learning_rate_factor", summary.learning_rate_factor);
  out.end_object();
}

void write_phase(JsonWriter& out, Phase phase, const PhaseUse& use) {
  out.begin_object(name_of(phase));
  out.number("steps", use.steps);
  out.number("seconds", use.sum.seconds);
  out.number("tokens", use.sum.tokens);
  out.number("cost", use.cost);
  out.number("peak_bytes", use.peak_bytes);
  write_bytes_by_kind(out, "peak_bytes_by_kind", use.sum.device_memory.peak);
  out.string("precision", use.precision);
  out.end_object();
}

void write_distributed(JsonWriter& out, const RunSummary::Distributed& distributed) {
  out.begin_object("distributed");
  out.number("ranks", distributed.ranks);
  out.number("zero", distributed.zero);
  out.string("backend", distributed.backend);
  out.number("bytes_sent", distributed.bytes_sent);
  const auto text_or_null = [&](const char* key, const std::string& text) {
    text.empty() ? out.null(key) : out.string(key, text);
  };
  out.number("exposed_seconds", distributed.exposed_seconds);
  text_or_null("imitated_link", distributed.imitated_link);
  text_or_null("lost_rank", distributed.lost_rank);
  if (distributed.slowest_rank_ratio) {
    out.string("slowest_rank", distributed.slowest_rank);
    out.number("slowest_rank_ratio", *distributed.slowest_rank_ratio);
  }
  out.end_object();
}

}  // namespace

std::string to_json(const RunSummary& summary) {
  JsonWriter out;
  out.begin_object();
  out.number("final_train_loss", summary.final_train_loss);
  out.number("final_validation_loss", summary.final_validation_loss);
  if (summary.final_average_validation_loss)
    out.number("final_average_validation_loss", summary.final_average_validation_loss);
  out.number("steps", summary.steps);
  out.number("tokens", summary.sum.tokens);
  out.number("seconds", summary.sum.seconds);
  out.begin_object("phases");
  for (Phase phase : kAllPhases) write_phase(out, phase, summary.phase(phase));
  out.end_object();
  out.begin_object("predictions");
  out.number("made", summary.predictions.made);
  out.number("accepted", summary.predictions.accepted);
  out.number("shrunk", summary.predictions.shrunk);
  out.number("reverted", summary.predictions.reverted);
  if (summary.sum.planning_cost) out.number("planning_cost", *summary.sum.planning_cost);
  out.end_object();
  write_recoveries(out, summary);
  if (summary.speculation) write_speculation(out, *summary.speculation);
  if (summary.learning_rate_finder) write_rate_finder(out, *summary.learning_rate_finder);
  if (summary.distributed) write_distributed(out, *summary.distributed);
  out.begin_object("memory");
  out.number("device_peak_bytes", summary.device_peak_bytes);
  out.number("host_peak_bytes", summary.host_peak_bytes);
  out.begin_object("offload");
  out.number("times", summary.offload.times);
  out.number("bytes", summary.offload.bytes);
  out.number("restore_seconds", summary.offload.restore_seconds);
  out.number("waited_seconds", summary.offload.waited_seconds);
  out.end_object();
  write_bytes_by_kind(out, "host_peak_bytes_by_kind", summary.host_peak_by_kind);
  write_bytes_by_kind(out, "file_peak_bytes_by_kind", summary.file_peak_by_kind);
  out.number("recommended_micro_batch", summary.sum.recommended_micro_batch);
  write_savings(out, summary.savings);
  out.end_object();
  out.number("parameters", summary.parameters);
  out.number("effective_batch", summary.effective_batch);
  out.string("end", summary.end);
  out.string("command", summary.command);
  out.string("version", summary.version);
  out.end_object();
  return out.text() + "\n";
}

}  // namespace hybrid_trainer
