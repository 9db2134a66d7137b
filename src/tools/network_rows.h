#pragma once

#include <cstdint>
#include <filesystem>
#include <optional>
#include <string>

#include "src/tools/config_arguments.h"

namespace hybrid_trainer {

/// What `hybrid rows` was asked of data that are no text: pictures, arrays or tables of series.
struct NetworkRows {
  std::filesystem::path data;
  std::filesystem::path model;  // a folder of a model or a run; empty: the preset's or file's
  ConfigArguments source;       // --preset, --config, --set
  std::string columns;
  std::optional<std::int64_t> shown;  // a line, row or example, from 1
  bool json = false;
};

/// Whether the model, or else the configuration that is asked for, is no language model.
bool are_of_network(const NetworkRows& asked);

/// Prints what a network would learn from the data, or from the example that is to be shown. Throws
/// UsageError, MissingInput, DataError.
void show_network_rows(const NetworkRows& asked);

}  // namespace hybrid_trainer
