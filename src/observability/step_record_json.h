#pragma once

#include <boost/json.hpp>
#include <string_view>

#include "hybrid_trainer/observability/step_record.h"

namespace hybrid_trainer {

using BytesByKind = std::array<std::size_t, kMemoryKinds>;

/// The bytes of each MemoryKind, by its name.
boost::json::object json_of(const ExpertLoads& loads);
boost::json::object json_of(const BytesByKind& bytes);

/// One line of metrics.jsonl, with its newline. The event begins with the names of numbers that JSON
/// cannot represent, and then warns.
std::string to_json_line(StepRecord record);

/// The record of a line without its newline; none if it is not a complete record.
std::optional<StepRecord> parse_json_line(std::string_view line);

}  // namespace hybrid_trainer
