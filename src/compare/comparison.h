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
  /// Folder for spec.json, result.json, report.html and runs/ARM/RUN, each a run's folder.
  std::filesystem::path output;
  bool resume = false;  // resume the comparison in `output`, or start if there is none
  std::string command;  // as typed, for the runs' summaries
  bool quiet = false;   // print only warnings to the console
};

struct ComparisonOutcome {
  bool interrupted = false;  // without a result
  ComparisonResult result;
  std::string result_json;  // contents of result.json
  std::string markdown;     // see markdown_table
};

/// Runs the sweeps of all variants, then for each seed and budget all variants in turn, one run at
/// a time. Prints progress to `console`. A run that diverges, runs out of memory or whose program
/// fails is part of the result; the others continue. Ctrl-C and SIGTERM end it like a run. Throws
/// ConfigError (also if a resumed spec changed), MissingInput, CannotCreate (`output` has other
/// contents), InUse, DataError, IoError.
ComparisonOutcome run_comparison(const ComparisonSettings& settings, std::ostream& console);

}  // namespace hybrid_trainer
