#pragma once

#include <filesystem>

#include "hybrid_trainer/compare/comparison_result.h"

namespace hybrid_trainer {

/// Writes report.html into the comparison's folder, whose runs/ it takes the curves from: one file
/// for any browser, without scripts and without a network. Throws IoError.
void write_comparison_report(const std::filesystem::path& output, const ComparisonSpec& spec,
                             const ComparisonResult& result);

}  // namespace hybrid_trainer
