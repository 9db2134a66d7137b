#pragma once

#include <string>

#include "src/tools/command_description.h"

namespace hybrid_trainer {

/// A command's page in section 1 of the manual, hybrid-NAME, as troff with the macros of man(7).
std::string manual_page(const CommandDescription& command, const std::string& summary);
/// The page of the program itself, hybrid, which lists the commands.
std::string manual_of_program();

}  // namespace hybrid_trainer
