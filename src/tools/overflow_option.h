#pragma once

#include <string>

#include "hybrid_trainer/generation/context_window.h"
#include "src/tools/command_line.h"

namespace hybrid_trainer {

/// Declares --context-overflow, bound to `name`, which must live until the command line is parsed.
void add_overflow_option(po::options_description& options, std::string& name);
/// Throws UsageError for another name than error and truncate.
ContextOverflow overflow_of_option(const std::string& name);

/// Says what a prompt lost, "the prompt has 891 tokens and the model's context 128: …".
std::string told_of_left_out(const FittedPrompt& prompt, const ContextWindow& window);
/// Says that the model no longer sees the beginning of what it writes.
std::string told_of_forgotten(std::int64_t forgotten, const ContextWindow& window);

}  // namespace hybrid_trainer
