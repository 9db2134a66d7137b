#include <gtest/gtest.h>

#include "hybrid_trainer/trainer/memory_simulation.h"
#include "tests/support/tiny_run.h"

namespace hybrid_trainer {
namespace {

constexpr std::int64_t kBatch = 32;

/// Correct, in fp32, needs more memory than the phases before it.
HybridTrainerConfig mixed_config() {
  HybridTrainerConfig config = tiny_config();
  config.model.width = 64;
  config.model.vocabulary = 27;
  config.data.batch_size = kBatch;
  auto& precision = config.mixed_precision;
  precision.warmup = precision.full = precision.predict = "bf16";
  return config;
}

class MicroBatches : public ::testing::Test {
 protected:
  void SetUp() override { prepare_tiny_data(data_, 4000); }
  std::vector<StepRecord> records() const { return records_of(run_); }
  void drop_checkpoint(const char* name) const {
    ASSERT_EQ(std::filesystem::remove_all(run_ / "checkpoints" / name) > 0, true) << name;
  }
  TemporaryFolder scratch_;
  std::filesystem::path data_ = scratch_ / "data", run_ = scratch_ / "run";
};

TEST_F(MicroBatches, HalvesOnlyInPhaseWithShortMemory) {
  HybridTrainerConfig config = mixed_config();
  const MemoryNeed need = simulate_memory(config, {});
  const std::size_t less = need.phase(Phase::kFull).peak_bytes,
                    more = need.phase(Phase::kCorrect).peak_bytes;
  ASSERT_GT(more, less + less / 10);
  config.memory.device_budget.bytes = (less + more) / 2;
  std::string console;
  train_tiny(config, data_, run_, false, &console);
  EXPECT_NE(console.find("too small for micro-batches of 32 examples in correct"),
            std::string::npos)
      << console;
  int corrects = 0, after = 0;
  for (const StepRecord& record : records()) {
    EXPECT_EQ(record.effective_batch, kBatch);
    const bool corrects_now = record.phase == Phase::kCorrect;
    EXPECT_EQ(record.micro_batches > 1, corrects_now) << record.step;
    corrects += corrects_now;
    after += corrects > 0 && record.phase == Phase::kFull;
  }
  EXPECT_GT(corrects, 0);
  EXPECT_GT(after, 0);
  const std::string wanted = newest_checkpoint_digest(run_);
  drop_checkpoint("step-0000000040");
  train_tiny(config, data_, run_, true);
  EXPECT_EQ(newest_checkpoint_digest(run_), wanted);
}

TEST_F(MicroBatches, RestoresSizeWhenBudgetGrows) {
  HybridTrainerConfig config = mixed_config();
  config.phases.max_predict_steps = 0;
  HybridTrainerConfig halves = config;
  halves.data.batch_size = kBatch / 2;
  halves.gradient_accumulation.micro_batches = 2;
  const auto need = [](const HybridTrainerConfig& of) {
    return simulate_memory(of, {}).device_bytes;
  };
  ASSERT_LT(need(halves), need(config));
  config.memory.device_budget.bytes = (need(halves) + need(config)) / 2;
  train_tiny(config, data_, run_);
  for (const StepRecord& record : records()) EXPECT_EQ(record.micro_batches, 2) << record.step;
  drop_checkpoint("step-0000000040");
  train_tiny(config, data_, run_, true);
  for (const StepRecord& record : records()) EXPECT_EQ(record.micro_batches, 2) << record.step;
  drop_checkpoint("step-0000000040");
  config.memory.device_budget.bytes = 2 * need(config);
  std::string console;
  train_tiny(config, data_, run_, true, &console);
  EXPECT_NE(console.find("the memory budget is larger than before"), std::string::npos) << console;
  for (const StepRecord& record : records())
    EXPECT_EQ(record.micro_batches, record.step <= 30 ? 2 : 1) << record.step;
}

TEST_F(MicroBatches, RecommendsLargestSizeWithinTarget) {
  HybridTrainerConfig config = mixed_config();
  config.training.steps = 12;
  config.phases.max_predict_steps = 0;
  config.memory.device_budget.bytes = 3 * simulate_memory(config, {}).device_bytes;
  train_tiny(config, data_, run_);
  const double target = 0.9 * static_cast<double>(config.memory.device_budget.bytes);
  const std::int64_t recommended = records().back().recommended_micro_batch;
  EXPECT_GT(recommended, kBatch);
  const auto peak = [&](std::int64_t batch) {
    config.data.batch_size = batch;
    return static_cast<double>(simulate_memory(config, {}).phase(Phase::kFull).peak_bytes);
  };
  EXPECT_LE(peak(recommended), target);
  EXPECT_GT(peak(recommended + recommended / 5), target);
}

}  // namespace
}  // namespace hybrid_trainer
