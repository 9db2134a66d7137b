#pragma once

#include <filesystem>
#include <string>
#include <vector>

#include "hybrid_trainer/config/hybrid_trainer_config.h"
#include "hybrid_trainer/observability/step_record.h"
#include "hybrid_trainer/run/training_run.h"
#include "tests/support/test_files.h"

namespace hybrid_trainer {

/// Four-character words with some structure, prepared as character tokens under `folder`.
void prepare_tiny_data(const std::filesystem::path& folder, int words = 1500);

/// A model of width 16 of a family: gpt2 of one layer, mamba2, granitemoehybrid (Mamba-2 and attention) or
/// qwen3_5 (Gated DeltaNet and attention) of two.
ModelConfig tiny_model(const std::string& family);

/// The families among them whose layers carry a state.
inline const std::vector<std::string>& state_families() {
  static const std::vector<std::string> names{"mamba2", "granitemoehybrid", "qwen3_5"};
  return names;
}

/// A GPT-2 of one layer and width 16 that goes through all four phases in 40 steps.
HybridTrainerConfig tiny_config();

/// Trains in `run`; the progress goes to `console` if given.
TrainingRunResult train_tiny(const HybridTrainerConfig& config, const std::filesystem::path& data,
                             const std::filesystem::path& run, bool resume = false,
                             std::string* console = nullptr);

/// What metrics.jsonl holds of the run.
std::vector<StepRecord> records_of(const std::filesystem::path& run);

/// A copy of a run as it was after step `last`; it had saved each of `steps` steps.
void copy_up_to(const std::filesystem::path& run, const std::filesystem::path& copy,
                std::int64_t last, std::int64_t steps);

/// Step and checksum of the newest checkpoint's tensors, whoever wrote it; without state.bin, which
/// contains times.
std::string newest_checkpoint_digest(const std::filesystem::path& run);

}  // namespace hybrid_trainer
