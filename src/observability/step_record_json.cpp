#include "step_record_json.h"

#include <boost/json.hpp>
#include <cmath>
#include <limits>

#include "hybrid_trainer/core/error.h"
#include "hybrid_trainer/files/json_writer.h"

namespace hybrid_trainer {
namespace {

namespace json = boost::json;

using BytesByKind = std::array<std::size_t, kMemoryKinds>;

void write_bytes(JsonWriter& out, std::string_view key, const BytesByKind& bytes) {
  out.begin_object(key);
  for (std::size_t kind = 0; kind < kMemoryKinds; ++kind) {
    out.number(name_of(static_cast<MemoryKind>(kind)), bytes[kind]);
  }
  out.end_object();
}

/// The record's event, preceded by the names of the numbers that JSON cannot represent.
std::string event_text(const StepRecord& record) {
  std::string text;
  const auto name = [&](const char* what, double value) {
    if (std::isfinite(value)) return;
    text += concat(text.empty() ? "" : ", ", what, " is ",
                   std::isnan(value) ? "NaN"
                   : value > 0       ? "infinite"
                                     : "minus infinite");
  };
  name("loss", record.loss);
  name("gradient norm", record.gradient_norm.value_or(0));
  name("predicted loss", record.predicted_loss.value_or(0));
  name("prediction error", record.prediction_error.value_or(0));
  name("validation loss", record.validation_loss.value_or(0));
  name("average's validation loss", record.average_validation_loss.value_or(0));
  if (text.empty() || record.event.empty()) return text + record.event;
  return text + "; " + record.event;
}

/// The value of a key that older files lack; null there.
const json::value& newer(const json::object& object, const char* key) {
  static const json::value none;
  const json::value* const value = object.if_contains(key);
  return value == nullptr ? none : *value;
}

std::int64_t newer_count(const json::object& object, const char* key) {
  const json::value& value = newer(object, key);
  return value.is_null() ? 0 : value.to_number<std::int64_t>();
}

std::optional<double> optional_real(const json::value& value) {
  if (value.is_null()) return std::nullopt;
  return value.to_number<double>();
}

double real(const json::value& value) {
  return optional_real(value).value_or(std::numeric_limits<double>::quiet_NaN());
}

BytesByKind bytes_by_kind(const json::object& object) {
  BytesByKind bytes{};
  for (std::size_t kind = 0; kind < kMemoryKinds; ++kind) {
    const json::value& value = newer(object, name_of(static_cast<MemoryKind>(kind)));
    if (!value.is_null()) bytes[kind] = value.to_number<std::size_t>();
  }
  return bytes;
}

Phase phase_of(const json::string& name) {
  for (Phase phase : kAllPhases) {
    if (name == name_of(phase)) return phase;
  }
  throw DataError(concat("unknown phase ", std::string_view(name)));
}

/// Of the values that have the name; `none` where it is null.
template <class Value, std::size_t count>
Value value_of(const json::value& name, const std::array<Value, count>& values, Value none) {
  if (name.is_null()) return none;
  for (const Value value : values) {
    if (name.as_string() == name_of(value)) return value;
  }
  throw DataError(concat("unknown ", std::string_view(name.as_string())));
}

StepRecord record_of(const json::object& object) {
  StepRecord record;
  record.step = object.at("step").to_number<std::int64_t>();
  record.phase = phase_of(object.at("phase").as_string());
  record.loss = real(object.at("loss"));
  record.learning_rate = real(object.at("learning_rate"));
  record.gradient_norm = optional_real(object.at("gradient_norm"));
  record.tokens = object.at("tokens").to_number<std::int64_t>();
  record.effective_batch = newer_count(object, "effective_batch");
  record.micro_batches = newer_count(object, "micro_batches");
  record.recommended_micro_batch = newer_count(object, "recommended_micro_batch");
  record.seconds = real(object.at("seconds"));
  record.tokens_per_second = real(object.at("tokens_per_second"));
  record.device_memory.live = bytes_by_kind(object.at("live_bytes").as_object());
  record.device_memory.peak = bytes_by_kind(object.at("peak_bytes").as_object());
  for (std::size_t bytes : record.device_memory.live) record.device_memory.live_total += bytes;
  record.device_memory.peak_total = object.at("peak_total_bytes").to_number<std::size_t>();
  record.border_peak_bytes = static_cast<std::size_t>(newer_count(object, "border_peak_bytes"));
  if (const json::value& status = newer(object, "memory_status"); !status.is_null()) {
    record.memory_status = std::string_view(status.as_string());
    record.memory_share = real(object.at("memory_share"));
    record.memory_risk = real(object.at("memory_risk"));
    record.memory_leaks = object.at("memory_leaks").as_bool();
  }
  record.host_memory.live_total = object.at("host_bytes").to_number<std::size_t>();
  record.predicted_loss = optional_real(object.at("predicted_loss"));
  record.confidence = optional_real(object.at("confidence"));
  if (const json::value& lag = newer(object, "lag"); !lag.is_null())
    record.lag = lag.to_number<std::int64_t>();
  record.prediction_error = optional_real(newer(object, "prediction_error"));
  record.rate_factor = optional_real(newer(object, "rate_factor"));
  record.probe_position = optional_real(newer(object, "probe_position"));
  record.probe_cost = optional_real(newer(object, "probe_cost"));
  record.planning_cost = optional_real(newer(object, "planning_cost"));
  if (const json::value& ratio = newer(object, "slowest_rank_ratio"); !ratio.is_null()) {
    record.slowest_rank = std::string_view(object.at("slowest_rank").as_string());
    record.slowest_rank_ratio = real(ratio);
  }
  if (const json::value& steps = newer(object, "planned_steps"); !steps.is_null()) {
    record.predictor = std::string_view(object.at("predictor").as_string());
    record.planned_steps = steps.to_number<std::int64_t>();
  }
  record.advantage = optional_real(newer(object, "advantage"));
  record.decision = value_of(newer(object, "decision"), kAllDecisions, Decision::kNone);
  record.recovery = value_of(newer(object, "recovery"), kAllRecoveries, Recovery::kContinue);
  record.kept_fraction = optional_real(newer(object, "kept_fraction"));
  record.cost = optional_real(newer(object, "cost"));
  record.event = std::string_view(object.at("event").as_string());
  const json::value& warns = newer(object, "warns");
  record.warns = warns.is_bool() && warns.get_bool();
  record.validation_loss = optional_real(object.at("validation_loss"));
  record.average_validation_loss = optional_real(newer(object, "average_validation_loss"));
  return record;
}

}  // namespace

std::string to_json_line(const StepRecord& record) {
  JsonWriter out;
  out.begin_object();
  out.number("step", record.step);
  out.string("phase", name_of(record.phase));
  out.number("loss", record.loss);
  out.number("learning_rate", record.learning_rate);
  out.number("gradient_norm", record.gradient_norm);
  out.number("tokens", record.tokens);
  out.number("effective_batch", record.effective_batch);
  out.number("micro_batches", record.micro_batches);
  out.number("seconds", record.seconds);
  out.number("tokens_per_second", record.tokens_per_second);
  write_bytes(out, "live_bytes", record.device_memory.live);
  write_bytes(out, "peak_bytes", record.device_memory.peak);
  out.number("peak_total_bytes", record.device_memory.peak_total);
  out.number("border_peak_bytes", record.border_peak_bytes);
  out.string("memory_status", record.memory_status);
  out.number("memory_share", record.memory_share);
  out.number("memory_risk", record.memory_risk);
  out.boolean("memory_leaks", record.memory_leaks);
  out.number("recommended_micro_batch", record.recommended_micro_batch);
  out.number("host_bytes", record.host_memory.live_total);
  out.number("predicted_loss", record.predicted_loss);
  out.number("confidence", record.confidence);
  if (record.planned_steps) {
    out.string("predictor", record.predictor);
    out.number("planned_steps", *record.planned_steps);
  }
  if (record.advantage) out.number("advantage", *record.advantage);
  if (record.lag) out.number("lag", *record.lag);
  if (record.lag) out.number("prediction_error", record.prediction_error);
  if (record.rate_factor) {
    out.number("rate_factor", record.rate_factor);
    out.number("probe_position", record.probe_position);
    out.number("probe_cost", record.probe_cost);
  }
  if (record.planning_cost) out.number("planning_cost", *record.planning_cost);
  if (record.slowest_rank_ratio) {
    out.string("slowest_rank", record.slowest_rank);
    out.number("slowest_rank_ratio", *record.slowest_rank_ratio);
  }
  if (record.decision == Decision::kNone) {
    out.null("decision");
  } else {
    out.string("decision", name_of(record.decision));
  }
  out.number("kept_fraction", record.kept_fraction);
  if (record.recovery == Recovery::kContinue) {
    out.null("recovery");
  } else {
    out.string("recovery", name_of(record.recovery));
  }
  out.number("cost", record.cost);
  const std::string event = event_text(record);
  out.string("event", event);
  out.boolean("warns", record.warns || event != record.event);
  out.number("validation_loss", record.validation_loss);
  if (record.average_validation_loss)
    out.number("average_validation_loss", record.average_validation_loss);
  out.end_object();
  return out.text() + "\n";
}

std::optional<StepRecord> parse_json_line(std::string_view line) {
  try {
    const json::value value = json::parse({line.data(), line.size()});
    return record_of(value.as_object());
  } catch (const std::exception&) {
    return std::nullopt;
  }
}

}  // namespace hybrid_trainer
