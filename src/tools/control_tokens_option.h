#pragma once

#include <string>

#include "src/tools/command_line.h"

namespace hybrid_trainer {

/// Declares --control-tokens, bound to `name`, which control_text_of reads and which must live until
/// the command line is parsed.
void add_control_tokens_option(po::options_description& options, std::string& name);

}  // namespace hybrid_trainer
