#pragma once

#include <filesystem>
#include <string>
#include <vector>

#include "hybrid_trainer/config/hybrid_trainer_config.h"
#include "hybrid_trainer/observability/step_record.h"
#include "hybrid_trainer/run/training_run.h"
#include "tests/support/test_files.h"

namespace hybrid_trainer {

/// Prepares text of structured four-character words as character tokens under `folder`.
void prepare_tiny_data(const std::filesystem::path& folder, int words = 1500);

/// Returns a model of width 16: gpt2 with one layer, or one with two layers, namely mamba2,
/// granitemoehybrid (Mamba-2 and attention) or qwen3_5 (Gated DeltaNet and attention).
ModelConfig tiny_model(const std::string& family);

/// Returns the families of tiny_model() with recurrent layers.
inline const std::vector<std::string>& state_families() {
  static const std::vector<std::string> names{"mamba2", "granitemoehybrid", "qwen3_5"};
  return names;
}

/// Returns a config of a GPT-2 of one layer and width 16, through all four phases in 40 steps.
HybridTrainerConfig tiny_config();

/// Trains in `run`; writes the progress to `console` if given.
TrainingRunResult train_tiny(const HybridTrainerConfig& config, const std::filesystem::path& data,
                             const std::filesystem::path& run, bool resume = false,
                             std::string* console = nullptr);

/// Returns the records of the run's metrics.jsonl.
std::vector<StepRecord> records_of(const std::filesystem::path& run);

/// Copies a run as it was after step `last`. The run must have a checkpoint of each of its `steps`.
void copy_up_to(const std::filesystem::path& run, const std::filesystem::path& copy,
                std::int64_t last, std::int64_t steps);

/// Returns the step of the newest checkpoint and a checksum of its tensors, which does not depend
/// on the number of ranks. Excludes state.bin, which contains times.
std::string newest_checkpoint_digest(const std::filesystem::path& run);

}  // namespace hybrid_trainer
