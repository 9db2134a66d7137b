#include "src/config/stages.h"

#include <gtest/gtest.h>

#include "hybrid_trainer/core/error.h"
#include "hybrid_trainer/trainer/memory_simulation.h"
#include "tests/support/tiny_run.h"

namespace hybrid_trainer {
namespace {

/// Twelve steps of 8 x 4 tokens, about thirteen of 2 x 16, then 4 x 16.
HybridTrainerConfig staged_config() {
  HybridTrainerConfig config = tiny_config();
  config.stages = {{.until = 0.3, .sequence_length = 4, .effective_batch = 8},
                   {.until = 0.6, .effective_batch = 2}};
  return config;
}

class StagedRun : public ::testing::Test {
 protected:
  void SetUp() override { prepare_tiny_data(data_); }
  void train(const HybridTrainerConfig& config, const std::string& name, bool resume = false) {
    train_tiny(config, data_, scratch_ / name, resume);
  }
  std::vector<StepRecord> records(const std::string& name) const {
    return records_of(scratch_ / name);
  }
  std::string digest(const std::string& name) const {
    return newest_checkpoint_digest(scratch_ / name);
  }
  TemporaryFolder scratch_;
  std::filesystem::path data_ = scratch_ / "data";
};

TEST(Stages, RoundsStepsToWholeWindows) {
  HybridTrainerConfig config = staged_config();
  config.training.steps = 45;  // 13.5 steps round to 14, then up to a multiple of 4
  const Stages stages(config);
  ASSERT_EQ(stages.all().size(), 3u);
  EXPECT_EQ(stages.all()[1].first_step, 16);
  EXPECT_EQ(stages.all()[2].first_step, 27);
  EXPECT_EQ(stages.at(0).batch, (BatchShape{8, 4}));
  EXPECT_EQ(stages.at(15).batch, (BatchShape{8, 4}));
  EXPECT_EQ(stages.at(16).batch, (BatchShape{2, 16}));
  EXPECT_EQ(stages.at(27).batch, (BatchShape{4, 16}));
  const std::vector<BatchStage> wanted{{16, {8, 4}}, {11, {2, 16}}};
  EXPECT_EQ(stages.batches(), wanted);
}

TEST(Stages, DefaultBatchKeepsTokensPerStep) {
  HybridTrainerConfig config = tiny_config();
  config.gradient_accumulation.micro_batches = 3;
  config.stages = {{.until = 0.5, .sequence_length = 8}};
  EXPECT_EQ(Stages(config).at(0).batch, (BatchShape{24, 8}));
}

TEST(Stages, LearningRateFollowsTokens) {
  const HybridTrainerConfig config = staged_config();
  EXPECT_DOUBLE_EQ(Stages(config).at(0).rate_factor, std::sqrt(0.5));
  EXPECT_EQ(Stages(config).at(39).rate_factor, 1);
}

TEST(Stages, ReportsProblemsByPath) {
  HybridTrainerConfig config = tiny_config();
  config.phases.method = "asynchronous_optimizer";
  config.stages = {{.until = 0.5, .sequence_length = 5},
                   {.until = 0.4, .sequence_length = 8, .effective_batch = 9},
                   {.until = 0.9, .precision = "bf16"},
                   {.until = 0.95, .orthogonalization_period = 2},
                   {.until = 1.5, .precision = "fp8"}};
  std::string all;
  for (const std::string& problem : config.problems()) all += problem + "\n";
  for (const char* wanted :
       {"stages[0].sequence_length: got 5, want a divisor of data.sequence_length, 16",
        "stages[1].effective_batch: got 9, want at most 8", "stages[1].until: got 0.4",
        "stages[2].precision: got bf16", "stages[3].orthogonalization_period: got 2",
        "stages[4].until", "stages[4].precision"})
    EXPECT_NE(all.find(wanted), std::string::npos) << wanted << "\nin\n" << all;
}

TEST_F(StagedRun, EachStepUsesItsBatchAndRate) {
  train(staged_config(), "run");
  train(tiny_config(), "plain");
  const auto found = records("run"), plain = records("plain");
  ASSERT_EQ(found.size(), 40u);
  for (std::size_t i = 0; i < found.size(); ++i) {
    const bool is_short = i < 12, is_small = !is_short && i < 24;
    EXPECT_EQ(found[i].effective_batch, is_short ? 8 : is_small ? 2 : 4) << i;
    EXPECT_EQ(found[i].tokens, is_short || is_small ? 32 : 64) << i;
    EXPECT_EQ(found[i].micro_batches, 1);
    const double factor = is_short || is_small ? std::sqrt(0.5) : 1;
    EXPECT_DOUBLE_EQ(found[i].learning_rate, factor * plain[i].learning_rate) << i;
  }
  EXPECT_NE(found[12].event.find("2 sequences of 16 tokens"), std::string::npos);
  EXPECT_NE(found[24].event.find("4 sequences of 16 tokens"), std::string::npos);
  EXPECT_EQ(found[13].event.find("sequences"), std::string::npos);
}

TEST_F(StagedRun, EachFieldTakesEffect) {
  train(staged_config(), "given");
  std::set<std::string> digests{digest("given")};
  const auto differs = [&](const char* what, auto&& change) {
    HybridTrainerConfig config = staged_config();
    change(config);
    train(config, what);
    EXPECT_TRUE(digests.insert(digest(what)).second) << what;
  };
  differs("until", [](auto& c) { c.stages[0].until = 0.4; });
  differs("sequence_length", [](auto& c) { c.stages[0].sequence_length = 8; });
  differs("effective_batch", [](auto& c) { c.stages[1].effective_batch = 3; });
  differs("precision", [](auto& c) { c.stages[1].precision = "bf16"; });
  differs("muon", [](auto& c) { c.optimizer.name = "muon"; });
  differs("orthogonalization_period", [](auto& c) {
    c.optimizer.name = "muon";
    c.stages[0].orthogonalization_period = 2;
  });
}

TEST_F(StagedRun, ResumesAnywhereBitwise) {
  HybridTrainerConfig config = staged_config();
  config.optimizer.name = "muon";
  config.optimizer.orthogonalization_period = 3;
  config.stages[1].precision = "bf16";
  config.stages[1].orthogonalization_period = 2;
  config.checkpoint = {.every_steps = 1, .keep = 40};
  train(config, "whole");
  for (std::int64_t stop = 2; stop < 40; stop += 3) {
    const std::string cut = concat("cut", stop);
    copy_up_to(scratch_ / "whole", scratch_ / cut, stop, 40);
    train(config, cut, true);
    EXPECT_EQ(digest(cut), digest("whole")) << "stopped after step " << stop;
  }
  config.training.steps = 50;
  EXPECT_THROW(train(config, "whole", true), ConfigError);
}

/// A prediction reverted across a stage boundary is repeated with the batches that it replaced.
TEST_F(StagedRun, RevertedPredictionsMatchPlainRun) {
  HybridTrainerConfig config = staged_config();
  config.stages[1].precision = "bf16";
  config.mixed_precision = {"fp32", "fp32", "fp32", "fp32"};
  config.phases.skip_backward.max_shrinks = 0;
  config.phases.skip_backward.decay = 1;
  config.optimizer.learning_rate = 3;  // so large that every predicted step overshoots
  train(config, "reverted");
  int across = 0;
  for (const StepRecord& record : records("reverted")) {
    EXPECT_TRUE(record.decision == Decision::kNone || record.decision == Decision::kReverted);
    across += record.phase == Phase::kPredict && (record.step == 13 || record.step == 25);
  }
  config.phases.max_predict_steps = 0;
  train(config, "plain");
  EXPECT_EQ(records("reverted").back().validation_loss, records("plain").back().validation_loss);
  EXPECT_GT(across, 0) << "no prediction crosses a stage boundary";
}

TEST_F(StagedRun, MicroBatchTokensDoNotExceedBase) {
  HybridTrainerConfig config = staged_config();
  config.data.batch_size = 1;
  config.gradient_accumulation.micro_batches = 4;
  train(config, "run");
  const auto found = records("run");
  EXPECT_EQ(found[0].micro_batches, 2)
      << "8 sequences of 4 tokens, at most 16 tokens per micro-batch";
  EXPECT_EQ(found[12].micro_batches, 2);
  EXPECT_EQ(found[24].micro_batches, 4);
}

TEST_F(StagedRun, StaysWithinPlannedMemory) {
  HybridTrainerConfig config = staged_config();
  config.model.width = 64;
  config.model.vocabulary = 17;
  config.stages[0].precision = "bf16";
  const MemoryNeed need = simulate_memory(config, {});
  config.memory.device_budget.bytes = need.device_bytes;
  train(config, "run");
  for (const StepRecord& record : records("run")) {
    EXPECT_EQ(record.event.find("too small"), std::string::npos) << record.event;
    EXPECT_LE(record.device_memory.peak_total, need.device_bytes);
  }
}

TEST_F(StagedRun, AsynchronousOptimizerResumesBitwise) {
  HybridTrainerConfig config = staged_config();
  config.phases.method = "asynchronous_optimizer";
  config.phases.asynchronous_optimizer.delay = 2;
  config.checkpoint = {.every_steps = 1, .keep = 40};
  train(config, "whole");
  for (const std::int64_t stop : {11, 12, 13, 25}) {
    const std::string cut = concat("cut", stop);
    copy_up_to(scratch_ / "whole", scratch_ / cut, stop, 40);
    train(config, cut, true);
    EXPECT_EQ(digest(cut), digest("whole")) << "stopped after step " << stop;
  }
}

}  // namespace
}  // namespace hybrid_trainer
