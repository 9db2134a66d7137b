#pragma once

#include <filesystem>
#include <iosfwd>

#include "src/compare/comparison_result.h"

namespace hybrid_trainer {

/// The arms as a table in Markdown, means with their intervals, and below it what is claimed of each
/// arm, or why nothing is.
std::string markdown_table(const ComparisonSpec& spec, const ComparisonResult& result);

/// Writes report.html into the comparison's folder, whose runs/ it takes the curves from: one file
/// for any browser, without scripts and without a network. Throws IoError.
void write_comparison_report(const std::filesystem::path& output, const ComparisonSpec& spec,
                             const ComparisonResult& result);

struct ComparisonSettings {
  std::filesystem::path spec;
  /// Gets spec.json, result.json, report.html and runs/ARM/RUN, each a run's folder.
  std::filesystem::path output;
  bool resume = false;  // go on with what `output` holds, or start where it holds nothing
  std::string command;  // as it was typed, for the runs' summaries
  bool quiet = false;   // the console gets warnings, no progress
};

struct ComparisonEnd {
  bool interrupted = false;  // then there is no result
  ComparisonResult result;
  std::string result_json;  // what result.json holds
  std::string markdown;     // see markdown_table
};

/// Runs the sweeps of all arms, then for each seed and budget all arms in turn, one run at a time,
/// with progress on `console`. A run that diverges, runs out of memory or whose program fails is
/// part of the result; the others go on. Ctrl-C and SIGTERM end it as they end a run. Throws
/// ConfigError (also where a resumed spec changed), MissingInput, CannotCreate (`output` holds
/// something else), InUse, DataError, IoError.
ComparisonEnd run_comparison(const ComparisonSettings& settings, std::ostream& console);

}  // namespace hybrid_trainer
