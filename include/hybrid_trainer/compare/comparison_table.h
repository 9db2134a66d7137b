#pragma once

#include <string>

#include "hybrid_trainer/compare/comparison_result.h"

namespace hybrid_trainer {

/// The arms as a table in Markdown, means with their intervals, and below it what is claimed of each
/// arm, or why nothing is.
std::string markdown_table(const ComparisonSpec& spec, const ComparisonResult& result);

}  // namespace hybrid_trainer
