#pragma once

#include <optional>
#include <string>
#include <string_view>

#include "hybrid_trainer/observability/step_record.h"

namespace hybrid_trainer {

/// One line of metrics.jsonl, with its newline.
std::string to_json_line(const StepRecord& record);

/// The record of a line without its newline; none if it is not a complete record.
std::optional<StepRecord> parse_json_line(std::string_view line);

}  // namespace hybrid_trainer
