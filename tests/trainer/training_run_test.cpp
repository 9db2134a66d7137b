#include "hybrid_trainer/trainer/training_run.h"

#include <gtest/gtest.h>
#include <omp.h>
#include <sys/wait.h>
#include <unistd.h>

#include <csignal>
#include <fstream>

#include "hybrid_trainer/core/error.h"
#include "hybrid_trainer/observability/jsonl_sink.h"
#include "tests/trainer/tiny_run.h"

namespace hybrid_trainer {
namespace {

class TrainingRunTest : public ::testing::Test {
 protected:
  void SetUp() override { prepare_tiny_data(data_); }
  TemporaryFolder scratch_;
  std::filesystem::path data_ = scratch_ / "data";
};

TEST_F(TrainingRunTest, LearnsThroughAllFourPhasesAndSaysSo) {
  std::string console;
  const TrainingRunResult result =
      train_tiny(tiny_config(), data_, scratch_ / "run", false, &console);
  EXPECT_EQ(result.end, RunEnd::kFinished);
  for (Phase phase : kAllPhases) EXPECT_GT(result.summary.phase(phase).steps, 0) << name_of(phase);
  EXPECT_GT(result.summary.predictions.made, 0);
  EXPECT_EQ(result.summary.steps, 40);
  EXPECT_LT(*result.summary.final_validation_loss, 3.0);
  for (const char* name :
       {"config.json", "metrics.jsonl", "summary.json", "report.html", "checkpoints"}) {
    EXPECT_TRUE(std::filesystem::exists(scratch_ / "run" / name)) << name;
  }
  EXPECT_NE(console.find("AdamW"), 0u);
  EXPECT_NE(console.find("vocabulary"), std::string::npos);
}

TEST_F(TrainingRunTest, StoppedAtAnyStepAndResumedGivesTheSameBits) {
  HybridTrainerConfig config = tiny_config();
  config.checkpoint.every_steps = 1;
  config.checkpoint.keep = 100;
  train_tiny(config, data_, scratch_ / "whole");
  const std::string wanted = newest_checkpoint_digest(scratch_ / "whole");
  for (int stop = 1; stop < 40; stop += 3) {
    const auto run = scratch_ / ("cut" + std::to_string(stop));
    std::filesystem::copy(scratch_ / "whole", run, std::filesystem::copy_options::recursive);
    for (int step = stop + 1; step <= 40; ++step) {
      char name[32];
      std::snprintf(name, sizeof name, "step-%010d", step);
      std::filesystem::remove_all(run / "checkpoints" / name);
    }
    train_tiny(config, data_, run, true);
    EXPECT_EQ(newest_checkpoint_digest(run), wanted) << "stopped after step " << stop;
    int records = 0;
    for_each_record(run / "metrics.jsonl",
                    [&](const StepRecord& record) { EXPECT_EQ(record.step, ++records); });
    EXPECT_EQ(records, 40);
  }
}

TEST_F(TrainingRunTest, ResumesWithEightBitStateToTheSameBitsAndNotWithAnother) {
  HybridTrainerConfig config = tiny_config();
  config.model.width = 64;
  config.optimizer.state_bits = 8;
  train_tiny(config, data_, scratch_ / "whole");
  const std::string wanted = newest_checkpoint_digest(scratch_ / "whole");
  const auto run = scratch_ / "cut";
  std::filesystem::copy(scratch_ / "whole", run, std::filesystem::copy_options::recursive);
  for (const char* step : {"step-0000000030", "step-0000000040"})
    std::filesystem::remove_all(run / "checkpoints" / step);
  train_tiny(config, data_, run, true);
  EXPECT_EQ(newest_checkpoint_digest(run), wanted);
  config.optimizer.state_bits = 32;
  config.training.steps = 50;
  try {
    train_tiny(config, data_, run, true);
    FAIL() << "8-bit state was resumed as 32-bit state";
  } catch (const DataError& error) {
    EXPECT_NE(std::string(error.what()).find("state_bits"), std::string::npos) << error.what();
  }
}

TEST_F(TrainingRunTest, RevertedPredictionsLeaveTheBitsOfAPlainRun) {
  HybridTrainerConfig config = tiny_config();
  config.model.dropout = 0.1;
  config.phases.max_shrinks = 0;
  config.phases.decay = 1;
  config.optimizer.learning_rate = 0.3;  // so large that every jump overshoots
  const TrainingRunResult result = train_tiny(config, data_, scratch_ / "reverted");
  ASSERT_GT(result.summary.predictions.made, 0);
  ASSERT_EQ(result.summary.predictions.reverted, result.summary.predictions.made);
  config.phases.max_predict_steps = 0;
  const TrainingRunResult plain = train_tiny(config, data_, scratch_ / "plain");
  EXPECT_EQ(*result.summary.final_validation_loss, *plain.summary.final_validation_loss);
}

TEST_F(TrainingRunTest, ResumeOfAFinishedRunChangesNothingAndMoreStepsGoOn) {
  HybridTrainerConfig config = tiny_config();
  train_tiny(config, data_, scratch_ / "run");
  const std::string before = newest_checkpoint_digest(scratch_ / "run");
  std::string console;
  EXPECT_EQ(train_tiny(config, data_, scratch_ / "run", true, &console).end, RunEnd::kWasFinished);
  EXPECT_NE(console.find("finished"), std::string::npos);
  EXPECT_EQ(newest_checkpoint_digest(scratch_ / "run"), before);
  config.training.steps = 50;
  EXPECT_EQ(train_tiny(config, data_, scratch_ / "run", true).summary.steps, 50);
}

TEST_F(TrainingRunTest, ResumeWithoutACheckpointStartsFromTheBeginning) {
  const TrainingRunResult result = train_tiny(tiny_config(), data_, scratch_ / "new", true);
  EXPECT_EQ(result.end, RunEnd::kFinished);
  EXPECT_EQ(result.summary.steps, 40);
}

TEST_F(TrainingRunTest, RefusesAFolderThatHoldsARunAndNamesResume) {
  train_tiny(tiny_config(), data_, scratch_ / "run");
  try {
    train_tiny(tiny_config(), data_, scratch_ / "run");
    FAIL() << "a second run was let into the folder";
  } catch (const CannotCreate& error) {
    EXPECT_NE(std::string(error.what()).find("--resume"), std::string::npos) << error.what();
  }
}

TEST_F(TrainingRunTest, RefusesAnotherModelOnResumeAndNamesTheField) {
  HybridTrainerConfig config = tiny_config();
  train_tiny(config, data_, scratch_ / "run");
  config.model.width = 32;
  try {
    train_tiny(config, data_, scratch_ / "run", true);
    FAIL() << "another model was resumed";
  } catch (const ConfigError& error) {
    EXPECT_NE(std::string(error.what()).find("model.width"), std::string::npos) << error.what();
  }
}

TEST_F(TrainingRunTest, LeavesNoFolderWhereDataOrConfigAreWrong) {
  HybridTrainerConfig config = tiny_config();
  config.data.batch_size = 0;
  EXPECT_THROW(train_tiny(config, data_, scratch_ / "a"), ConfigError);
  EXPECT_THROW(train_tiny(tiny_config(), scratch_ / "nowhere", scratch_ / "a"), MissingInput);
  EXPECT_FALSE(std::filesystem::exists(scratch_ / "a"));
}

TEST_F(TrainingRunTest, SignalSavesAndTheRunGoesOnToTheSameBits) {
  HybridTrainerConfig config = tiny_config();
  config.training.steps = 400;
  train_tiny(config, data_, scratch_ / "whole");
  omp_pause_resource_all(omp_pause_hard);  // a child has none of its parent's threads to wait for
  const pid_t child = fork();
  if (child == 0) {
    const bool stopped = train_tiny(config, data_, scratch_ / "cut").end == RunEnd::kInterrupted;
    _exit(stopped ? 130 : 0);
  }
  const auto metrics = scratch_ / "cut" / "metrics.jsonl";
  while (!std::filesystem::exists(metrics) || std::filesystem::file_size(metrics) < 3000)
    usleep(1000);
  kill(child, SIGTERM);
  int status = 0;
  waitpid(child, &status, 0);
  ASSERT_TRUE(WIFEXITED(status));
  EXPECT_EQ(WEXITSTATUS(status), 130);
  train_tiny(config, data_, scratch_ / "cut", true);
  EXPECT_EQ(newest_checkpoint_digest(scratch_ / "cut"),
            newest_checkpoint_digest(scratch_ / "whole"));
}

}  // namespace
}  // namespace hybrid_trainer
