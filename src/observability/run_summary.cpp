#include "hybrid_trainer/observability/run_summary.h"

#include <algorithm>
#include <limits>

#include "hybrid_trainer/files/json_writer.h"

namespace hybrid_trainer {
namespace {

using BytesOfKinds = std::array<std::size_t, kMemoryKinds>;

void write_kinds(JsonWriter& out, std::string_view key, const BytesOfKinds& bytes) {
  out.begin_object(key);
  for (std::size_t kind = 0; kind < kMemoryKinds; ++kind)
    out.number(name_of(static_cast<MemoryKind>(kind)), bytes[kind]);
  out.end_object();
}

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
  out.number("seconds", use.seconds);
  out.number("tokens", use.tokens);
  out.number("cost", use.cost);
  out.number("peak_bytes", use.peak_bytes);
  write_kinds(out, "peak_bytes_by_kind", use.peak_by_kind);
  out.string("precision", use.precision);
  out.end_object();
}

void write_distributed(JsonWriter& out, const RunSummary::Distributed& distributed) {
  out.begin_object("distributed");
  out.number("ranks", distributed.ranks);
  out.number("zero", distributed.zero);
  out.string("backend", distributed.backend);
  out.number("bytes_sent", distributed.bytes_sent);
  if (distributed.exposed_seconds) {
    out.number("exposed_seconds", *distributed.exposed_seconds);
  } else {
    out.null("exposed_seconds");
  }
  if (distributed.imitated_link.empty()) {
    out.null("imitated_link");
  } else {
    out.string("imitated_link", distributed.imitated_link);
  }
  if (distributed.lost_rank.empty()) {
    out.null("lost_rank");
  } else {
    out.string("lost_rank", distributed.lost_rank);
  }
  if (distributed.slowest_rank_ratio) {
    out.string("slowest_rank", distributed.slowest_rank);
    out.number("slowest_rank_ratio", *distributed.slowest_rank_ratio);
  }
  out.end_object();
}

}  // namespace

void RunSummary::add(const StepRecord& record) {
  steps = std::max(steps + 1, record.step);  // records may be lost, steps are not
  tokens += record.tokens;
  seconds += record.seconds;
  final_train_loss = record.loss;
  recommended_micro_batch = record.recommended_micro_batch;
  if (record.validation_loss) final_validation_loss = record.validation_loss;
  if (record.average_validation_loss)
    final_average_validation_loss = record.average_validation_loss;
  if (record.advantage) advantage = record.advantage;
  if (record.planning_cost) planning_cost = planning_cost.value_or(0) + *record.planning_cost;
  if (record.lag) add_late_step(record);
  if (record.rate_factor) add_probe(record);
  ++count(record.recovery);
  PhaseUse& left = phase(last_phase);
  if (left.steps > 0) left.peak_bytes = std::max(left.peak_bytes, record.border_peak_bytes);
  last_phase = record.phase;
  PhaseUse& use = phase(record.phase);
  ++use.steps;
  use.seconds += record.seconds;
  use.tokens += record.tokens;
  use.cost += record.cost.value_or(std::numeric_limits<double>::quiet_NaN());
  use.peak_bytes = std::max(use.peak_bytes, record.device_memory.peak_total);
  for (std::size_t kind = 0; kind < kMemoryKinds; ++kind) {
    use.peak_by_kind[kind] = std::max(use.peak_by_kind[kind], record.device_memory.peak[kind]);
  }
}

double RunSummary::prediction_cost() const {
  double cost = learning_rate_finder ? -learning_rate_finder->cost : 0;
  for (const PhaseUse& use : phases) cost += use.cost - static_cast<double>(use.steps);
  return cost;
}

void RunSummary::add_late_step(const StepRecord& record) {
  if (!speculation) speculation.emplace();
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
  if (!learning_rate_finder) learning_rate_finder.emplace();
  RateFinder& finder = *learning_rate_finder;
  finder.factor = *record.rate_factor;
  finder.learning_rate = std::max(finder.learning_rate, record.learning_rate);
  if (!record.probe_position) return;
  ++finder.probes;
  finder.cost += record.probe_cost.value_or(0);
}

std::string to_json(const RunSummary& summary) {
  JsonWriter out;
  out.begin_object();
  out.number("final_train_loss", summary.final_train_loss);
  out.number("final_validation_loss", summary.final_validation_loss);
  if (summary.final_average_validation_loss)
    out.number("final_average_validation_loss", summary.final_average_validation_loss);
  out.number("steps", summary.steps);
  out.number("tokens", summary.tokens);
  out.number("seconds", summary.seconds);
  out.begin_object("phases");
  for (Phase phase : kAllPhases) write_phase(out, phase, summary.phase(phase));
  out.end_object();
  out.begin_object("predictions");
  out.number("made", summary.predictions.made);
  out.number("accepted", summary.predictions.accepted);
  out.number("shrunk", summary.predictions.shrunk);
  out.number("reverted", summary.predictions.reverted);
  if (summary.planning_cost) out.number("planning_cost", *summary.planning_cost);
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
  write_kinds(out, "host_peak_bytes_by_kind", summary.host_peak_by_kind);
  write_kinds(out, "file_peak_bytes_by_kind", summary.file_peak_by_kind);
  out.number("recommended_micro_batch", summary.recommended_micro_batch);
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
