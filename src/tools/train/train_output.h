#pragma once

#include "hybrid_trainer/run/training_run.h"
#include "src/tools/command_line.h"

namespace hybrid_trainer {

/// Whether standard error is kept free of progress: beside JSON, unless somebody watches it.
bool keeps_quiet(bool json);

/// Whether a --set KEY=VALUE is of a key of the model that its folder says; the others are of training.
bool is_of_folder(const std::string& setting);
/// Throws UsageError of such a --set, which would change nothing: the model is taken from its folder.
void check_model_is_not_set(const std::string& command, const std::vector<std::string>& settings);

/// Adds --export.
void add_export_option(po::options_description& options, std::string& folder);

/// Prints how a run ended, with `json` its summary; returns the exit code.
int report_training(const TrainingRunResult& result, const std::string& run, bool json);

}  // namespace hybrid_trainer
