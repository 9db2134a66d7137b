#include "src/run/training_loop.h"

#include <gtest/gtest.h>
#include <unistd.h>

#include <csignal>
#include <iterator>
#include <sstream>

#include "hybrid_trainer/core/error.h"
#include "hybrid_trainer/core/interruption.h"
#include "tests/support/tiny_run.h"

// When a run is saved, and what it prints when it is stopped.
namespace hybrid_trainer {
namespace {

class SavedRun : public ::testing::Test {
 protected:
  void SetUp() override { prepare_tiny_data(data_); }
  std::int64_t checkpoints_of(const std::filesystem::path& run) const {
    return std::distance(std::filesystem::directory_iterator(run / "checkpoints"), {});
  }
  TemporaryFolder scratch_;
  std::filesystem::path data_ = scratch_ / "data";
};

HybridTrainerConfig saved_each_moment() {
  HybridTrainerConfig config = tiny_config();
  config.checkpoint = {.every_steps = 0, .every_minutes = 1e-9, .keep = 100};
  return config;
}

TEST_F(SavedRun, SavesByMinutesWithoutChangingResult) {
  for (const char* method : {"skip_backward", "asynchronous_optimizer"}) {
    HybridTrainerConfig config = saved_each_moment();
    config.phases.method = method;
    const auto by_minutes = scratch_ / concat(method, "-minutes"), at_end = scratch_ / method;
    train_tiny(config, data_, by_minutes);
    EXPECT_EQ(checkpoints_of(by_minutes), 40) << method;
    config.checkpoint.every_minutes = 0;
    train_tiny(config, data_, at_end);
    EXPECT_EQ(checkpoints_of(at_end), 1) << method;
    EXPECT_EQ(newest_checkpoint_digest(by_minutes), newest_checkpoint_digest(at_end)) << method;
  }
}

TEST_F(SavedRun, DoesNotSaveBeforeMinutesElapse) {
  HybridTrainerConfig config = saved_each_moment();
  config.checkpoint.every_minutes = 60;
  train_tiny(config, data_, scratch_ / "run");
  EXPECT_EQ(checkpoints_of(scratch_ / "run"), 1);
}

// Rollback checkpoints must not depend on the speed of the machine.
TEST_F(SavedRun, IgnoresMinutesWithRollback) {
  HybridTrainerConfig config = saved_each_moment();
  config.divergence.on_critical = Recovery::kRollBack;
  train_tiny(config, data_, scratch_ / "run");
  EXPECT_EQ(checkpoints_of(scratch_ / "run"), 2);  // before the first and after the last step
}

class StoppedRun : public SavedRun {
 protected:
  /// Requests a stop after step `after`; 0 requests it before the first step.
  std::string stop(std::int64_t after) {
    const Interruption interruption;
    const auto ask = [&] {
      ::kill(::getpid(), SIGTERM);
      while (!interruption.requested()) ::usleep(100);
    };
    if (after == 0) ask();
    std::ostringstream console;
    const TrainingRunResult result =
        run_training({.config = tiny_config(),
                      .data = data_,
                      .run = scratch_ / "run",
                      .init_from = {},
                      .command = "typed",
                      .resume_command = "hybrid train --resume --run there",
                      .restart_command = "typed --resume",
                      .on_step =
                          [&](const StepRecord& record) {
                            if (record.step == after) ask();
                          },
                      .interruption = &interruption},
                     console);
    EXPECT_EQ(result.end, RunEnd::kInterrupted);
    return console.str();
  }
};

TEST_F(StoppedRun, PrintsResumeCommandOfSavedStep) {
  const std::string console = stop(3);
  EXPECT_NE(console.find("stopped after step 3 of 40 and saved; continue with: hybrid train "
                         "--resume --run there\n"),
            std::string::npos)
      << console;
  EXPECT_EQ(checkpoints_of(scratch_ / "run"), 1);
}

TEST_F(StoppedRun, BeforeFirstStepPrintsRestartCommand) {
  const std::string console = stop(0);
  EXPECT_NE(console.find("nothing was trained; start again with: typed --resume\n"),
            std::string::npos)
      << console;
  EXPECT_EQ(train_tiny(tiny_config(), data_, scratch_ / "run", true).end, RunEnd::kFinished);
}

}  // namespace
}  // namespace hybrid_trainer
