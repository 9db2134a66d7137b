// Complete runs with optimizers whose state is smaller than AdamW's. Memory options and a stop in
// between change no bit.
#include <gtest/gtest.h>

#include "tests/support/test_files.h"
#include "tests/support/tiny_run.h"

namespace hybrid_trainer {
namespace {

/// Name and state_bits.
class OptimizerRuns : public ::testing::TestWithParam<std::pair<const char*, int>> {
 protected:
  void SetUp() override { prepare_tiny_data(data_); }
  HybridTrainerConfig config() const {
    HybridTrainerConfig config = tiny_config();
    config.model.width = 64;  // makes matrices large enough for 8-bit state
    config.optimizer.name = GetParam().first;
    config.optimizer.state_bits = GetParam().second;
    config.optimizer.orthogonalization_period = 3;
    config.mixed_precision.full = "bf16";
    return config;
  }
  std::string digest(const HybridTrainerConfig& config, const char* run) {
    EXPECT_EQ(train_tiny(config, data_, scratch_ / run).end, RunEnd::kFinished);
    return newest_checkpoint_digest(scratch_ / run);
  }
  TemporaryFolder scratch_;
  std::filesystem::path data_ = scratch_ / "data";
};

TEST_P(OptimizerRuns, MemoryPlacementDoesNotChangeResults) {
  HybridTrainerConfig moving = config();
  const std::string wanted = digest(moving, "near");
  moving.memory.optimizer_state = "host";
  moving.memory.weights = "host";
  moving.memory.gradients = "consume";
  EXPECT_EQ(digest(moving, "host"), wanted);
  HybridTrainerConfig staying = config();
  staying.memory.optimizer_state = "file";
  staying.predict_aware_memory.offload_strategy = "none";
  EXPECT_EQ(digest(staying, "file"), wanted);
}

TEST_P(OptimizerRuns, ResumesFromCheckpointBitwise) {
  const std::string wanted = digest(config(), "run");
  std::vector<std::filesystem::path> checkpoints;
  for (const auto& entry : std::filesystem::directory_iterator(scratch_ / "run" / "checkpoints"))
    checkpoints.push_back(entry.path());
  std::sort(checkpoints.begin(), checkpoints.end());
  ASSERT_GT(checkpoints.size(), 1u);
  std::filesystem::remove_all(checkpoints.back());
  ASSERT_NE(newest_checkpoint_digest(scratch_ / "run"), wanted);
  train_tiny(config(), data_, scratch_ / "run", true);
  EXPECT_EQ(newest_checkpoint_digest(scratch_ / "run"), wanted);
}

INSTANTIATE_TEST_SUITE_P(Optimizers, OptimizerRuns,
                         ::testing::Values(std::pair{"adam_mini", 32}, std::pair{"adafactor", 32},
                                           std::pair{"lion", 16}, std::pair{"lion", 8},
                                           std::pair{"muon", 32}),
                         [](const auto& info) {
                           return concat(info.param.first, "_", info.param.second);
                         });

}  // namespace
}  // namespace hybrid_trainer
