#include <gtest/gtest.h>

#include <unistd.h>

#include <cmath>
#include <csignal>
#include <fstream>
#include <sstream>
#include <thread>

#include "hybrid_trainer/core/error.h"
#include "hybrid_trainer/core/interruption.h"
#include "src/files/config_fields.h"
#include "src/observability/jsonl_sink.h"
#include "tests/support/tiny_run.h"

namespace hybrid_trainer {
namespace {

const double kTooMuch = std::ldexp(1.0, 100);  // a power of 2, so dividing by it restores the bits

std::string text_of(const std::filesystem::path& path) {
  std::ifstream in(path, std::ios::binary);
  return {std::istreambuf_iterator<char>(in), {}};
}

std::vector<StepRecord> records_of(const std::filesystem::path& run) {
  std::vector<StepRecord> records;
  for_each_record(run / "metrics.jsonl", [&](const StepRecord& r) { records.push_back(r); });
  return records;
}

/// A run whose learning rate is fatal until it has rolled back once.
HybridTrainerConfig fatal(HybridTrainerConfig config) {
  config.optimizer.learning_rate *= kTooMuch;
  config.divergence.on_critical = Recovery::kRollBack;
  config.divergence.roll_back_rate = 1 / kTooMuch;
  return config;
}

class RollBackRun : public ::testing::Test {
 protected:
  void SetUp() override { prepare_tiny_data(data_); }
  /// Trains until step `last` is done, then ends abruptly.
  void train_and_die(const HybridTrainerConfig& config, const std::filesystem::path& run,
                     std::int64_t last, bool resume) {
    std::ostringstream console;
    TrainingRunSettings settings;
    settings.config = config;
    settings.data = data_;
    settings.run = run;
    settings.resume = resume;
    settings.command = "test";
    settings.on_step = [&](const StepRecord& record) {
      if (record.step == last) throw last;
    };
    EXPECT_THROW(run_training(settings, console), std::int64_t) << console.str();
  }
  /// Trains until a stop is requested in step `last`; the run ends with a checkpoint.
  void stop_after(const HybridTrainerConfig& config, const std::filesystem::path& run,
                  std::int64_t last) {
    const Interruption interruption;
    std::ostringstream console;
    TrainingRunSettings settings;
    settings.config = config;
    settings.data = data_;
    settings.run = run;
    settings.command = "test";
    settings.interruption = &interruption;
    settings.on_step = [&](const StepRecord& record) {
      if (record.step == last) ::kill(::getpid(), SIGTERM);
      while (record.step == last && !interruption.requested()) std::this_thread::yield();
    };
    EXPECT_EQ(run_training(settings, console).end, RunEnd::kInterrupted) << console.str();
  }
  TemporaryFolder scratch_;
  std::filesystem::path data_ = scratch_ / "data";
};

TEST_F(RollBackRun, RollbackToStartMatchesRunAtThatRate) {
  for (const char* method : {"skip_backward", "asynchronous_optimizer"}) {
    HybridTrainerConfig config = tiny_config();
    config.phases.method = method;
    config.schedule.warmup_steps = 0;
    const auto plain = scratch_ / concat("plain_", method), run = scratch_ / method;
    train_tiny(config, data_, plain);
    const RunSummary summary = train_tiny(fatal(config), data_, run).summary;
    EXPECT_EQ(newest_checkpoint_digest(run), newest_checkpoint_digest(plain)) << method;
    EXPECT_EQ(summary.end, "finished");
    EXPECT_EQ(summary.steps, 40);
    EXPECT_EQ(summary.count(Recovery::kRollBack), 1);
    EXPECT_EQ(summary.learning_rate_factor, 1 / kTooMuch);
    EXPECT_GE(summary.rolled_back_steps, 2);
  }
}

TEST_F(RollBackRun, RollbackIsReportedInAllOutputs) {
  HybridTrainerConfig config = tiny_config();
  config.schedule.warmup_steps = 0;
  std::string console;
  train_tiny(fatal(config), data_, scratch_ / "run", false, &console);
  const std::vector<StepRecord> records = records_of(scratch_ / "run");
  ASSERT_EQ(records.size(), 40u);
  for (std::size_t i = 0; i < records.size(); ++i)
    EXPECT_EQ(records[i].step, static_cast<std::int64_t>(i) + 1);
  EXPECT_EQ(records.front().recovery, Recovery::kRollBack);
  EXPECT_TRUE(records.front().warns);
  for (const std::string& text : {records.front().event, console}) {
    EXPECT_NE(text.find("to step 0 (roll-back 1 of 3) because of step "), std::string::npos)
        << text;
    EXPECT_NE(text.find("not finite"), std::string::npos) << text;
  }
  EXPECT_NE(text_of(scratch_ / "run" / "metrics.jsonl").find("\"recovery\":\"roll_back\""),
            std::string::npos);
  EXPECT_NE(text_of(scratch_ / "run" / "summary.json").find("\"roll_back\":1"), std::string::npos);
  EXPECT_NE(text_of(scratch_ / "run" / "report.html").find("roll_back"), std::string::npos);
}

TEST_F(RollBackRun, RollbackInAnyPhaseMatchesUndisturbedRun) {
  for (const char* method : {"skip_backward", "asynchronous_optimizer"}) {
    HybridTrainerConfig config = tiny_config();
    config.phases.method = method;
    config.checkpoint.every_steps = 1;
    config.checkpoint.keep = 100;
    const auto whole = scratch_ / concat("whole_", method);
    train_tiny(config, data_, whole);
    config.checkpoint.every_steps = 50;
    for (std::int64_t step = 12; step <= 24; step += 2) {
      const auto run = scratch_ / concat(method, step);
      copy_up_to(whole, run, step, 40);
      const RunSummary summary = train_tiny(fatal(config), data_, run, true).summary;
      EXPECT_EQ(summary.count(Recovery::kRollBack), 1);
      EXPECT_EQ(newest_checkpoint_digest(run), newest_checkpoint_digest(whole))
          << method << " resumed from step " << step;
    }
  }
}

TEST_F(RollBackRun, KilledAfterRollbackResumesBitwise) {
  HybridTrainerConfig config = tiny_config();
  config.checkpoint.every_steps = 10;
  config.checkpoint.keep = 100;
  const auto whole = scratch_ / "whole";
  train_tiny(config, data_, whole);
  for (const std::int64_t last : {21, 23, 31}) {
    const auto run = scratch_ / concat("run", last);
    copy_up_to(whole, run, 20, 40);
    train_and_die(fatal(config), run, last, true);
    if (last < 30) train_and_die(fatal(config), run, last, true);
    const RunSummary summary = train_tiny(fatal(config), data_, run, true).summary;
    EXPECT_EQ(newest_checkpoint_digest(run), newest_checkpoint_digest(whole)) << last;
    EXPECT_EQ(summary.count(Recovery::kRollBack), 1) << last;
    EXPECT_EQ(summary.learning_rate_factor, 1 / kTooMuch) << last;
    EXPECT_EQ(summary.steps, 40);
  }
}

TEST_F(RollBackRun, RollsBackFurtherFromRuinedCheckpoint) {
  HybridTrainerConfig config = tiny_config();
  config.checkpoint.every_steps = 1;
  config.checkpoint.keep = 100;
  config.phases.max_predict_steps = 0;
  const auto whole = scratch_ / "whole", run = scratch_ / "run";
  train_tiny(config, data_, whole);
  copy_up_to(whole, run, 20, 40);
  const RunSummary summary = train_tiny(fatal(config), data_, run, true).summary;
  EXPECT_EQ(summary.end, "finished");
  EXPECT_EQ(summary.learning_rate_factor, std::pow(kTooMuch, -2))
      << "rolled back from step 21, then from 20";
  EXPECT_EQ(summary.rolled_back_steps, 1 + 2);
  EXPECT_EQ(summary.count(Recovery::kRollBack), 2)
      << "includes the rollback whose record was discarded";
  EXPECT_NE(text_of(run / "summary.json").find("\"roll_back\":2"), std::string::npos);
  EXPECT_NE(text_of(run / "report.html").find("2 times"), std::string::npos);
}

TEST_F(RollBackRun, EndsRunAfterMaxRollbacks) {
  HybridTrainerConfig config = fatal(tiny_config());
  config.schedule.warmup_steps = 0;
  config.divergence.roll_back_rate = 0.5;  // does not help
  config.divergence.max_roll_backs = 2;
  try {
    train_tiny(config, data_, scratch_ / "run");
    FAIL() << "the run should have diverged";
  } catch (const Diverged& error) {
    EXPECT_NE(std::string(error.what()).find("divergence.max_roll_backs = 2"), std::string::npos)
        << error.what();
  }
  const std::string summary = text_of(scratch_ / "run" / "summary.json");
  EXPECT_NE(summary.find("\"end\":\"diverged\""), std::string::npos);
  EXPECT_NE(summary.find("\"learning_rate_factor\":0.25"), std::string::npos) << summary;
  EXPECT_NE(summary.find("\"roll_back\":2"), std::string::npos) << summary;
  EXPECT_NE(newest_checkpoint_digest(scratch_ / "run"), "none");
}

/// A config in which any noise is a warning.
HybridTrainerConfig nervous(Recovery on_warning) {
  HybridTrainerConfig config = tiny_config();
  config.divergence.window = 4;
  config.divergence.loss_sigmas = 0.5;
  config.divergence.max_skipped_updates = 100;
  config.divergence.on_warning = on_warning;
  return config;
}

/// The rate ends at half of the configured one, so the bits depend on the step rolled back to.
TEST_F(RollBackRun, StopDoesNotChangeRollbackStep) {
  HybridTrainerConfig config = tiny_config();
  config.phases.max_predict_steps = 0;
  config.divergence.on_critical = Recovery::kRollBack;
  config.checkpoint.keep = 1;
  HybridTrainerConfig slower = config;
  slower.optimizer.learning_rate /= 2;
  const auto wanted = scratch_ / "wanted";
  stop_after(config, wanted, 20);
  train_tiny(slower, data_, wanted, true);
  for (const std::int64_t stop : {21, 25, 28}) {
    const auto run = scratch_ / concat("stopped", stop);
    stop_after(config, run, stop);
    HybridTrainerConfig fatal_here = fatal(config);
    fatal_here.divergence.roll_back_rate /= 2;
    const RunSummary summary = train_tiny(fatal_here, data_, run, true).summary;
    EXPECT_EQ(summary.count(Recovery::kRollBack), 1) << stop;
    EXPECT_EQ(summary.rolled_back_steps, stop + 2 - 20) << stop;
    EXPECT_EQ(newest_checkpoint_digest(run), newest_checkpoint_digest(wanted)) << stop;
  }
}

TEST_F(RollBackRun, EachRecoveryIsReportedInAllOutputs) {
  for (const Recovery recovery : kAllRecoveries) {
    if (recovery == Recovery::kRollBack || recovery == Recovery::kAbort) continue;
    const auto run = scratch_ / name_of(recovery);
    const RunSummary summary = train_tiny(nervous(recovery), data_, run).summary;
    std::int64_t in_metrics = 0;
    for (const StepRecord& record : records_of(run)) in_metrics += record.recovery == recovery;
    EXPECT_EQ(in_metrics, summary.count(recovery));
    EXPECT_GT(in_metrics, 0) << name_of(recovery);
    if (recovery == Recovery::kContinue) continue;
    const std::string name = name_of(recovery);
    EXPECT_NE(summary.count(Recovery::kContinue), 40);
    EXPECT_NE(
        text_of(run / "summary.json").find(concat("\"", name, "\":", summary.count(recovery))),
        std::string::npos);
    EXPECT_NE(text_of(run / "report.html").find(concat(summary.count(recovery), " steps")),
              std::string::npos);
  }
}

TEST_F(RollBackRun, SkippedBatchChangesNoWeight) {
  HybridTrainerConfig config = nervous(Recovery::kSkipBatch);
  config.phases.max_predict_steps = 0;
  config.checkpoint.every_steps = 1;
  config.checkpoint.keep = 100;
  const auto run = scratch_ / "run";
  train_tiny(config, data_, run);
  const auto weights = [&](std::int64_t step) {
    const std::string name = concat("step-", std::string(step < 10 ? 9 : 8, '0'), step);
    return text_of(run / "checkpoints" / name / "model.safetensors");
  };
  int skipped = 0;
  for (const StepRecord& record : records_of(run)) {
    if (record.step == 1) continue;
    const bool is_skip = record.recovery == Recovery::kSkipBatch;
    skipped += is_skip;
    EXPECT_EQ(weights(record.step) == weights(record.step - 1), is_skip) << record.step;
  }
  EXPECT_GT(skipped, 0);
}

TEST_F(RollBackRun, AbortIsLastRecord) {
  const auto run = scratch_ / "run";
  EXPECT_THROW(train_tiny(nervous(Recovery::kAbort), data_, run), Diverged);
  const StepRecord last = records_of(run).back();
  EXPECT_EQ(last.recovery, Recovery::kAbort);
  EXPECT_NE(last.event.find("divergence.on_warning"), std::string::npos) << last.event;
  const std::string summary = text_of(run / "summary.json");
  EXPECT_NE(summary.find("\"abort\":1"), std::string::npos) << summary;
  EXPECT_NE(summary.find(concat("\"steps\":", last.step - 1)), std::string::npos) << summary;
  EXPECT_NE(summary.find("\"end\":\"diverged\""), std::string::npos);
  EXPECT_NE(newest_checkpoint_digest(run).find(concat("step ", last.step - 1, "\n")),
            std::string::npos);
}

TEST(RecoveryConfig, RejectsPredictorActionsWhenAsynchronous) {
  HybridTrainerConfig config = tiny_config();
  config.divergence.on_warning = Recovery::kRaiseThreshold;
  config.divergence.on_critical = Recovery::kResetPredictor;
  EXPECT_TRUE(config.problems().empty());
  config.phases.method = "asynchronous_optimizer";
  EXPECT_EQ(config.problems().size(), 2u);
}

TEST_F(RollBackRun, HealthyRunRaisesNoWarning) {
  prepare_tiny_data(scratch_ / "more", 6000);
  HybridTrainerConfig config = tiny_config();
  config.training.steps = 400;
  config.checkpoint.every_steps = 0;
  config.divergence.on_caution = Recovery::kAbort;
  config.divergence.on_warning = Recovery::kAbort;
  config.divergence.on_critical = Recovery::kAbort;
  const RunSummary summary = train_tiny(config, scratch_ / "more", scratch_ / "run").summary;
  EXPECT_EQ(summary.count(Recovery::kContinue), 400);
  for (const StepRecord& record : records_of(scratch_ / "run"))
    EXPECT_FALSE(record.warns) << record.step << ": " << record.event;
}

}  // namespace
}  // namespace hybrid_trainer
