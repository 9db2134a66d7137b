#pragma once

#include <filesystem>
#include <iosfwd>

#include "src/compare/comparison_result.h"

namespace hybrid_trainer {

/// Returns the variants as a Markdown table with intervals, followed by each variant's claim.
std::string markdown_table(const ComparisonSpec& spec, const ComparisonResult& result);

/// Writes report.html, one file with the runs' curves, to the comparison's folder. Throws IoError.
void write_comparison_report(const std::filesystem::path& output, const ComparisonSpec& spec,
                             const ComparisonResult& result);

struct ComparisonSettings {
  std::filesystem::path spec;
  /// Folder for spec.json, result.json, report.html and the folders of runs, runs/VARIANT/RUN.
  std::filesystem::path output;
  bool resume = false;  // resume the comparison in `output`, or start if there is none
  std::string command;  // as typed, for the runs' summaries
  bool quiet = false;   // print only warnings to the console
};

struct ComparisonOutcome {
  bool interrupted = false;  // a stop was requested, so there is no result
  ComparisonResult result;
  std::string result_json;  // contents of result.json
  std::string markdown;     // see markdown_table
};

/// Runs the sweeps, then the variants in turn for each seed and budget. The result includes runs
/// that diverge, run out of memory or whose program fails. Ctrl-C and SIGTERM end the comparison.
/// Throws ConfigError (also if a resumed spec changed), MissingInput, CannotCreate (`output` has
/// other contents), InUse, DataError, IoError.
ComparisonOutcome run_comparison(const ComparisonSettings& settings, std::ostream& console);

}  // namespace hybrid_trainer
