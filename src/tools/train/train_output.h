#pragma once

#include "hybrid_trainer/run/training_run.h"

namespace hybrid_trainer {

/// Returns whether to hide the progress: if output is JSON and standard error is not a terminal.
bool is_quiet(bool json);

/// Returns whether a --set KEY=VALUE is for a key that the model's folder determines.
bool is_folder_setting(const std::string& setting);
/// Throws UsageError if one of the settings is_folder_setting, because it would have no effect.
void check_model_is_not_set(const std::string& command, const std::vector<std::string>& settings);

/// Prints how a run ended. With `json`, prints its summary. Returns the exit code.
int report_training(const TrainingRunResult& result, const std::string& run, bool json);

}  // namespace hybrid_trainer
