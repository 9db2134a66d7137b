#pragma once

#include <filesystem>
#include <string>

#include "hybrid_trainer/observability/model_texts.h"
#include "hybrid_trainer/observability/run_summary.h"

namespace hybrid_trainer {

struct ReportInput {
  std::string title;              // the run's name
  std::filesystem::path metrics;  // metrics.jsonl
  RunSummary summary;
  std::string settings;  // the run's configuration as text
  ModelTexts texts{};    // what the model writes; what is empty is left out
};

/// Writes report.html: one self-contained file (styles, script, data) for any browser, without a
/// network. Curves longer than about 1,500 points are downsampled by averaging. Replaces the file
/// in one rename. Throws MissingInput, IoError.
void write_report(const std::filesystem::path& path, const ReportInput& input);

}  // namespace hybrid_trainer
