#pragma once

#include <string>

#include "src/tools/command_line.h"

namespace hybrid_trainer {

/// Declares --columns, by which examples are read; the same as data.columns.
void add_columns_option(po::options_description& options, std::string& columns);

}  // namespace hybrid_trainer
