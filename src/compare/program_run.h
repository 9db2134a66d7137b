#pragma once

#include <cstdint>
#include <filesystem>
#include <optional>
#include <string>
#include <vector>

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

}  // namespace hybrid_trainer
