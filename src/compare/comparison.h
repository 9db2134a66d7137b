#pragma once

#include <filesystem>
#include <iosfwd>

#include "src/compare/comparison_result.h"

namespace hybrid_trainer {

/// Returns the variants as a Markdown table with intervals, and each variant's claim below it.
std::string markdown_table(const ComparisonSpec& spec, const ComparisonResult& result);

/// Writes report.html to the comparison's folder, with the curves from its runs/: one file for any
/// browser, without scripts or network access. Throws IoError.
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

/// Runs the sweeps of all variants. Then, for each seed and budget, runs the variants one after the
/// other. Prints progress to `console`. A run that diverges, runs out of memory or whose program
/// fails is part of the result, and the comparison continues. Ctrl-C and SIGTERM end the comparison
/// as they end a run. Throws ConfigError (also if a resumed spec changed), MissingInput,
/// CannotCreate (`output` has other contents), InUse, DataError, IoError.
ComparisonOutcome run_comparison(const ComparisonSettings& settings, std::ostream& console);

}  // namespace hybrid_trainer
