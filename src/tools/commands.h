#pragma once

#include <span>

#include "src/tools/command_line.h"

namespace hybrid_trainer {

/// Run the sub-commands of `hybrid`. Each function takes the command's arguments and returns the
/// exit code or throws. Results are written to standard output (one JSON object with --json), other
/// text to standard error.
int bench_command(const std::vector<std::string>& arguments);
int chat_command(const std::vector<std::string>& arguments);
int compare_command(const std::vector<std::string>& arguments);
int completion_command(const std::vector<std::string>& arguments);
int config_command(const std::vector<std::string>& arguments);
int doctor_command(const std::vector<std::string>& arguments);
int eval_command(const std::vector<std::string>& arguments);
int export_command(const std::vector<std::string>& arguments);
int finetune_command(const std::vector<std::string>& arguments);
int inspect_command(const std::vector<std::string>& arguments);
int man_command(const std::vector<std::string>& arguments);
int plan_command(const std::vector<std::string>& arguments);
int predict_command(const std::vector<std::string>& arguments);
int prepare_command(const std::vector<std::string>& arguments);
int rows_command(const std::vector<std::string>& arguments);
int sample_command(const std::vector<std::string>& arguments);
int transcribe_command(const std::vector<std::string>& arguments);
int train_command(const std::vector<std::string>& arguments);
int upcycle_command(const std::vector<std::string>& arguments);
int watch_command(const std::vector<std::string>& arguments);

struct Command {
  const char* name;
  int (*run)(const std::vector<std::string>&);
  const char* summary;
};

std::span<const Command> command_table();

CommandDescription describe(const Command& command);
/// Returns one JSON object with the version and all commands with their options.
std::string description_of_all();

}  // namespace hybrid_trainer
