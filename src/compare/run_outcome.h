#pragma once

#include <filesystem>

#include "hybrid_trainer/run/training_run.h"
#include "src/compare/comparison_result.h"

namespace hybrid_trainer {

class Interruption;

struct ProgramCall {
  std::vector<std::string> command;
  std::filesystem::path folder;          // working folder
  std::filesystem::path output, errors;  // files of its standard output and error
};

/// Runs a program without a shell, in a separate process group and with empty standard input, and
/// waits for it. Returns "" if its exit status was 0, else how it ended or why it did not start. A
/// stop request ends it with SIGTERM, and after five seconds with SIGKILL. Throws IoError.
std::string run_program(const ProgramCall& call, const Interruption& interruption);

/// A line {"step", "tokens", "seconds", "validation_loss"} of a program, optionally with "flops".
struct ProgramLine {
  std::int64_t step = 0, tokens = 0;
  double seconds = 0;  // training time since its first step
  double validation_loss = 0;
  std::optional<double> flops;
};

struct ProgramOutput {
  std::vector<ProgramLine> lines;
  std::int64_t junk_lines = 0;  // other lines
  std::string first_junk;
  std::string problem;  // "" or the line with a number that is not finite
};
ProgramOutput parse_program_output(const std::string& text);

struct LossPoint {
  double tokens = 0, seconds = 0, loss = 0;
};
/// Returns training losses averaged to `most` points, or a program's validation losses.
std::vector<LossPoint> loss_curve(const std::filesystem::path& run, std::size_t most);

/// Reads the results from the run's summary.json and config.json. Throws DataError.
RunOutcome read_outcome(const std::filesystem::path& run, const RunPoint& point);

/// Returns whether the run's folder contains a finished run. Throws ConfigError if it contains a run
/// with a different configuration.
bool is_finished(const TrainingRunSettings& run);

/// Returns whether a program's run is finished. An unfinished run is repeated.
bool is_finished(const std::filesystem::path& run, const std::vector<std::string>& command);

/// Runs a program of the spec and writes stdout.txt, stderr.txt and summary.json to `run`. Returns
/// false if a stop was requested. Throws IoError.
bool run_program_variant(const ComparisonSpec& spec, const std::vector<std::string>& command,
                         const std::filesystem::path& run, const Interruption& interruption);

}  // namespace hybrid_trainer
