#pragma once

#include <span>
#include <string>
#include <vector>

#include "src/tools/command_description.h"

namespace hybrid_trainer {

/// A sub-command of `hybrid`.
struct Command {
  const char* name;
  int (*run)(const std::vector<std::string>&);
  const char* summary;
};

std::span<const Command> command_table();

CommandDescription describe(const Command& command);
/// One JSON object: the version, and each command with its options.
std::string description_of_all();

}  // namespace hybrid_trainer
