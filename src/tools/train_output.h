#pragma once

#include <string>
#include <vector>

#include "hybrid_trainer/run/training_run.h"
#include "src/tools/command_line.h"

namespace hybrid_trainer {

/// Whether standard error is kept free of progress: beside JSON, unless somebody watches it.
bool keeps_quiet(bool json);

/// Throws UsageError of a --set of model.* but dropout: the model is taken whole from its folder, and a
/// key of it that was set would change nothing.
void check_model_is_not_set(const std::string& command, const std::vector<std::string>& settings);

/// Adds --export.
void add_export_option(po::options_description& options, std::string& folder);

/// Prints how a run ended, with `json` its summary; returns the exit code.
int report_training(const TrainingRunResult& result, const std::string& run, bool json);

}  // namespace hybrid_trainer
