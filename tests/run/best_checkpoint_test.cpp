#include <algorithm>
#include <csignal>
#include <set>
#include <thread>

#include <unistd.h>

#include "hybrid_trainer/core/error.h"
#include "hybrid_trainer/data/token_dataset.h"
#include "src/files/checkpoint.h"
#include "src/generation/evaluation.h"
#include "src/run/run_files.h"
#include "tests/run/run_over_ranks.h"
#include "tests/support/test_files.h"

namespace hybrid_trainer {
namespace {

namespace fs = std::filesystem;

RunWeights best_weights() {
  RunWeights weights;
  weights.checkpoint = RunWeights::Checkpoint::kBest;
  return weights;
}

std::string name_of_best(const fs::path& run) {
  const fs::path file = run / "checkpoints/best";
  return fs::exists(file) ? read_text(file) : "";
}

std::string name_of_step(std::int64_t step) {
  char name[32];
  std::snprintf(name, sizeof name, "step-%010lld\n", static_cast<long long>(step));
  return name;
}

std::set<std::int64_t> steps_in(const fs::path& run) {
  const auto steps = steps_of_checkpoints((run / "checkpoints").string());
  return {steps.begin(), steps.end()};
}

/// The lowest validation loss in metrics.jsonl.
BestCheckpoint lowest_of(const fs::path& run) {
  BestCheckpoint best{0, 1e9};
  for (const StepRecord& record : records_of(run)) {
    if (record.validation_loss && *record.validation_loss < best.validation_loss)
      best = {record.step, *record.validation_loss};
  }
  return best;
}

class BestCheckpointTest : public RunOverRanks {
 protected:
  /// A learning rate that becomes too high after a while.
  static HybridTrainerConfig judging() {
    HybridTrainerConfig config = tiny_config();
    config.training.threads = 1;
    config.training.evaluate_every_steps = 3;
    config.optimizer.learning_rate = 0.5;
    config.schedule.name = "constant";
    config.checkpoint.keep = 1;
    config.checkpoint.keep_best = 1;
    return config;
  }
  double loss_of(const TrainedRun& run) const {
    const Stream stream(MemoryPool::create("device"));
    const TokenDataset validation(data_, Split::kValidation, run.config.model.vocabulary);
    const OrderedBatches windows(TokenWindows::for_evaluation(validation, 16),
                                 run.config.data.batch_size, stream);
    return evaluate(run.model(), windows, DType::kF32, stream).loss;
  }
  /// Trains until a stop is requested in step `last`; the run ends with a checkpoint.
  void stop_after(const HybridTrainerConfig& config, const fs::path& run, std::int64_t last) const {
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
};

TEST_F(BestCheckpointTest, IsKeptInAdditionToNewest) {
  const fs::path run = scratch_ / "run";
  const RunSummary summary = train_tiny(judging(), data_, run).summary;
  const BestCheckpoint lowest = lowest_of(run);
  ASSERT_LT(lowest.step, 40);
  EXPECT_EQ(summary.best, lowest);
  EXPECT_EQ(name_of_best(run), name_of_step(lowest.step));
  EXPECT_EQ(steps_in(run), (std::set<std::int64_t>{lowest.step, 40}));
  const Stream stream(MemoryPool::create("device"));
  const TrainedRun best = load_trained_run(run, stream, model_families(), best_weights());
  EXPECT_EQ(best.step, lowest.step);
  EXPECT_NEAR(loss_of(best), lowest.validation_loss, 1e-9);
  EXPECT_EQ(load_trained_run(run, stream).step, 40);
}

TEST_F(BestCheckpointTest, KeepsRequestedNumberOfLowestLosses) {
  HybridTrainerConfig config = judging();
  config.checkpoint.keep_best = 3;
  const fs::path run = scratch_ / "run";
  train_tiny(config, data_, run);
  std::vector<std::pair<double, std::int64_t>> losses;
  for (const StepRecord& record : records_of(run))
    if (record.validation_loss) losses.emplace_back(*record.validation_loss, record.step);
  std::ranges::sort(losses);
  std::set<std::int64_t> wanted{40};
  for (int i = 0; i < 3; ++i) wanted.insert(losses[static_cast<std::size_t>(i)].second);
  EXPECT_EQ(steps_in(run), wanted);
}

/// The saved weights are the evaluated ones, even if the live weights are ahead of them.
TEST_F(BestCheckpointTest, HoldsEvaluatedWeightsWithEveryMethod) {
  for (const char* method :
       {"skip_backward", "asynchronous_optimizer", "asynchronous_gradients", "local_sgd"}) {
    HybridTrainerConfig config = judging();
    config.data.batch_size = 2;
    config.gradient_accumulation.micro_batches = 4;
    config.training.evaluate_every_steps = 1;
    config.phases.method = method;
    config.phases.max_predict_steps = 12;
    config.phases.local_sgd.steps = 4;
    config.phases.local_sgd.delay = 1;
    config.optimizer.learning_rate = 0.01;
    const fs::path run = scratch_ / method;
    const bool is_of_ranks = config.phases.traits().runs_ahead_of_ranks;
    if (is_of_ranks) {
      train(config, run, 2);
    } else {
      train_tiny(config, data_, run);
    }
    const std::vector<StepRecord> records = records_of(run);
    EXPECT_TRUE(std::ranges::any_of(records, [](const StepRecord& one) {
      return one.phase == Phase::kPredict;
    })) << method;
    const BestCheckpoint lowest = lowest_of(run);
    const Stream stream(MemoryPool::create("device"));
    const TrainedRun best = load_trained_run(run, stream, model_families(), best_weights());
    EXPECT_EQ(best.step, lowest.step) << method;
    EXPECT_NEAR(loss_of(best), lowest.validation_loss, 1e-6) << method;
  }
}

TEST_F(BestCheckpointTest, MatchesAfterResumeFromAnyStep) {
  for (const char* method : {"skip_backward", "asynchronous_optimizer"}) {
    HybridTrainerConfig config = judging();
    config.phases.method = method;
    config.checkpoint.every_steps = 1;
    config.checkpoint.keep = 100;
    const fs::path whole = scratch_ / method;
    const RunSummary wanted = train_tiny(config, data_, whole).summary;
    ASSERT_TRUE(wanted.best);
    for (std::int64_t stop = 2; stop < 40; stop += 3) {
      const fs::path run = scratch_ / concat(method, stop);
      copy_up_to(whole, run, stop, 40);
      const RunSummary found = train_tiny(config, data_, run, true).summary;
      EXPECT_EQ(found.best, wanted.best) << method << " stopped after step " << stop;
      EXPECT_EQ(name_of_best(run), name_of_best(whole)) << stop;
      EXPECT_EQ(newest_checkpoint_digest(run), newest_checkpoint_digest(whole)) << stop;
    }
  }
}

TEST_F(BestCheckpointTest, OverRanksMatchesOneRank) {
  HybridTrainerConfig config = judging();
  config.data.batch_size = 2;
  config.gradient_accumulation.micro_batches = 4;
  config.training.patience = 4;
  config.training.steps = 100;
  train(config, scratch_ / "one", 1);
  const BestCheckpoint lowest = lowest_of(scratch_ / "one");
  ASSERT_LT(records_of(scratch_ / "one").size(), 100u) << "patience must end it";
  for (const std::int64_t zero : {0, 2, 3}) {
    config.distributed.zero = zero;
    const fs::path run = scratch_ / concat("zero", zero);
    train(config, run, 3);
    EXPECT_EQ(name_of_best(run), name_of_step(lowest.step)) << zero;
    EXPECT_EQ(steps_in(run), steps_in(scratch_ / "one")) << zero;
    EXPECT_EQ(newest_checkpoint_digest(run), newest_checkpoint_digest(scratch_ / "one")) << zero;
  }
}

TEST_F(BestCheckpointTest, ExistsAfterRollback) {
  HybridTrainerConfig config = judging();
  config.optimizer.learning_rate = 3e-3;  // each evaluation lowers the loss
  config.phases.max_predict_steps = 0;
  config.divergence.on_critical = Recovery::kRollBack;
  const fs::path run = scratch_ / "run";
  stop_after(config, run, 25);
  EXPECT_EQ(steps_in(run), (std::set<std::int64_t>{18, 20, 24, 25}))
      << "step 18 was the best one at step 20, to which the run may roll back";
  HybridTrainerConfig fatal = config;
  fatal.optimizer.learning_rate *= 0x1p100;
  fatal.divergence.roll_back_rate = 0x1p-100;
  fatal.training.evaluate_every_steps = 30;
  const RunSummary summary = train_tiny(fatal, data_, run, true).summary;
  ASSERT_EQ(summary.count(Recovery::kRollBack), 1);
  ASSERT_TRUE(summary.best);
  EXPECT_EQ(name_of_best(run), name_of_step(summary.best->step));
  const Stream stream(MemoryPool::create("device"));
  const TrainedRun best = load_trained_run(run, stream, model_families(), best_weights());
  EXPECT_NEAR(loss_of(best), summary.best->validation_loss, 1e-9);
}

TEST_F(BestCheckpointTest, LostCheckpointIsForgottenOnResume) {
  HybridTrainerConfig config = judging();
  config.training.steps = 30;
  const fs::path run = scratch_ / "run";
  train_tiny(config, data_, run);
  const std::int64_t lost = lowest_of(run).step;
  ASSERT_LT(lost, 30);
  std::string name = name_of_step(lost);
  name.pop_back();
  fs::remove_all(run / "checkpoints" / name);
  const Stream stream(MemoryPool::create("device"));
  EXPECT_THROW(load_trained_run(run, stream, model_families(), best_weights()), MissingInput);
  config.training.steps = 40;
  std::string console;
  const RunSummary summary = train_tiny(config, data_, run, true, &console).summary;
  EXPECT_TRUE(
      contains(console, "a checkpoint with one of the lowest validation losses no longer exists"))
      << console;
  ASSERT_TRUE(summary.best);
  EXPECT_GT(summary.best->step, 30);
  EXPECT_EQ(load_trained_run(run, stream, model_families(), best_weights()).step,
            summary.best->step);
}

TEST_F(BestCheckpointTest, PatienceStopsAtSameStepAfterResume) {
  HybridTrainerConfig config = judging();
  config.training.steps = 200;
  config.training.patience = 3;
  config.checkpoint.every_steps = 1;
  config.checkpoint.keep = 200;
  std::string console;
  const fs::path whole = scratch_ / "whole";
  const TrainingRunResult result = train_tiny(config, data_, whole, false, &console);
  EXPECT_EQ(result.end, RunEnd::kFinished);
  EXPECT_TRUE(result.summary.stopped_early);
  const std::int64_t end = result.summary.steps;
  ASSERT_LT(end, 200);
  EXPECT_TRUE(contains(console, concat("the run ends after step ", end, " of 200"))) << console;
  std::vector<double> losses;
  for (const StepRecord& record : records_of(whole))
    if (record.validation_loss) losses.push_back(*record.validation_loss);
  ASSERT_GT(losses.size(), 3u);
  EXPECT_EQ(std::ranges::min_element(losses) - losses.begin(), std::ssize(losses) - 4);
  for (std::int64_t stop = 1; stop < end; stop += 4) {
    const fs::path run = scratch_ / concat("cut", stop);
    copy_up_to(whole, run, stop, 200);
    const RunSummary found = train_tiny(config, data_, run, true).summary;
    EXPECT_EQ(found.steps, end) << stop;
    EXPECT_EQ(newest_checkpoint_digest(run), newest_checkpoint_digest(whole)) << stop;
  }
  EXPECT_EQ(train_tiny(config, data_, whole, true, &console).end, RunEnd::kWasFinished);
  EXPECT_TRUE(contains(console, "to continue, set a larger training.patience, or 0")) << console;
  config.training.patience = 0;
  config.training.steps = end + 2;
  EXPECT_EQ(train_tiny(config, data_, whole, true).summary.steps, end + 2);
}

TEST_F(BestCheckpointTest, RejectsPatienceWithoutEvaluations) {
  HybridTrainerConfig config = tiny_config();
  config.training.patience = 2;
  const std::string message =
      message_of<ConfigError>([&] { train_tiny(config, data_, scratch_ / "run"); });
  EXPECT_TRUE(contains(message, "training.patience: got 2, but training.evaluate_every_steps is 0"))
      << message;
  EXPECT_FALSE(fs::exists(scratch_ / "run"));
}

TEST_F(BestCheckpointTest, ReportsMissingBestOrRequestedStep) {
  train_tiny(tiny_config(), data_, scratch_ / "run");
  const Stream stream(MemoryPool::create("device"));
  const auto message = [&](const RunWeights& weights) {
    return message_of<MissingInput>(
        [&] { load_trained_run(scratch_ / "run", stream, model_families(), weights); });
  };
  EXPECT_TRUE(contains(message(best_weights()), "has no best checkpoint"))
      << message(best_weights());
  RunWeights weights;
  weights.checkpoint = RunWeights::Checkpoint::kStep;
  weights.step = 30;
  EXPECT_EQ(load_trained_run(scratch_ / "run", stream, model_families(), weights).step, 30);
  weights.step = 31;
  EXPECT_TRUE(
      contains(message(weights), "has no checkpoint of step 31; existing checkpoints: 40, 30, 20"))
      << message(weights);
}

}  // namespace
}  // namespace hybrid_trainer
