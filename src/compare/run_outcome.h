#pragma once

#include <filesystem>

#include "hybrid_trainer/compare/comparison_result.h"

namespace hybrid_trainer {

class Interruption;

/// One point of a run's loss curve.
struct LossPoint {
  double tokens = 0, seconds = 0, loss = 0;
};
/// Of training loss, averaged over neighbouring steps to `most` points; of a program the validation
/// losses that it told. Empty where the run left none.
std::vector<LossPoint> loss_curve(const std::filesystem::path& run, std::size_t most);

/// What the run's summary.json and config.json tell. Throws DataError.
RunOutcome read_outcome(const std::filesystem::path& run, const RunPoint& point);

/// True if the folder holds a run of this configuration that is finished. Throws ConfigError where
/// it holds a run of another one.
bool is_finished(const std::filesystem::path& run, const HybridTrainerConfig& config);

/// The same of a program's run, which is done anew where it is not.
bool is_finished(const std::filesystem::path& run, const std::vector<std::string>& command);

/// Runs a program of the spec and leaves stdout.txt, stderr.txt and summary.json in `run`; false
/// where a stop was asked for. Throws IoError.
bool run_program_arm(const ComparisonSpec& spec, const std::vector<std::string>& command,
                     const std::filesystem::path& run, const Interruption& interruption);

}  // namespace hybrid_trainer
