#pragma once

#include <filesystem>

#include "hybrid_trainer/run/training_run.h"
#include "src/compare/comparison_result.h"

namespace hybrid_trainer {

class Interruption;

struct ProgramCall {
  std::vector<std::string> command;
  std::filesystem::path folder;          // in which it runs
  std::filesystem::path output, errors;  // files of its standard output and error
};

/// Runs the program without a shell, in a process group of its own and with nothing on its standard
/// input, and waits. "" where it ended with exit status 0, else how it ended or why it did not
/// start. A stop that is asked for ends it (SIGTERM, after five seconds SIGKILL). Throws IoError.
std::string run_program(const ProgramCall& call, const Interruption& interruption);

/// A line {"step", "tokens", "seconds", "validation_loss"} of a program, perhaps with "flops".
struct ProgramLine {
  std::int64_t step = 0, tokens = 0;
  double seconds = 0;  // of training, since its first step
  double validation_loss = 0;
  std::optional<double> flops;
};

/// What a program told on its standard output.
struct ProgramOutput {
  std::vector<ProgramLine> lines;
  std::int64_t junk_lines = 0;  // others
  std::string first_junk;
  std::string problem;  // "" or the line that tells of a number that is not finite
};
ProgramOutput parse_program_output(const std::string& text);

/// One point of a run's loss curve.
struct LossPoint {
  double tokens = 0, seconds = 0, loss = 0;
};
/// Of training loss, averaged over neighbouring steps to `most` points; of a program the validation
/// losses that it told. Empty where the run left none.
std::vector<LossPoint> loss_curve(const std::filesystem::path& run, std::size_t most);

/// What the run's summary.json and config.json tell. Throws DataError.
RunOutcome read_outcome(const std::filesystem::path& run, const RunPoint& point);

/// True if the run's folder holds one of this configuration that is finished. Throws ConfigError where
/// it holds a run of another one; as the task.
bool is_finished(const TrainingRunSettings& run);

/// The same of a program's run, which is done anew where it is not.
bool is_finished(const std::filesystem::path& run, const std::vector<std::string>& command);

/// Runs a program of the spec and leaves stdout.txt, stderr.txt and summary.json in `run`; false
/// where a stop was asked for. Throws IoError.
bool run_program_arm(const ComparisonSpec& spec, const std::vector<std::string>& command,
                     const std::filesystem::path& run, const Interruption& interruption);

}  // namespace hybrid_trainer
