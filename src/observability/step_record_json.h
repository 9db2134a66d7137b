#pragma once

#include <boost/json.hpp>
#include <string_view>

#include "hybrid_trainer/observability/step_record.h"

namespace hybrid_trainer {

using BytesByKind = std::array<std::size_t, kMemoryKinds>;

/// Converts to JSON. Bytes are keyed by the name of their MemoryKind.
boost::json::object json_of(const ExpertLoads& loads);
boost::json::object json_of(const BytesByKind& bytes);

/// Reads the counts in a run's summary.json; absent counts are 0.
PredictionCounts prediction_counts(const boost::json::value& summary);

/// Returns one line of metrics.jsonl, with its newline. If JSON cannot represent a number, inserts
/// the name of the number before the event, and marks the event as a warning.
std::string to_json_line(StepRecord record);

/// Returns the record of a line without its newline, or nullopt if it is not a complete record.
std::optional<StepRecord> parse_json_line(std::string_view line);

}  // namespace hybrid_trainer
