#include <gtest/gtest.h>
#include <unistd.h>

#include <array>
#include <csignal>
#include <sstream>
#include <thread>

#include "hybrid_trainer/core/interruption.h"
#include "src/distributed/host_ranks.h"
#include "tests/support/tiny_run.h"

namespace hybrid_trainer {
namespace {

namespace fs = std::filesystem;

struct LateRunCase {
  const char* name;
  std::int64_t local_steps, zero, fragments = 1, bits = 32;
};

/// Runs of two ranks that do not wait for each other in Predict: steps 15 to 38.
class LateRun : public ::testing::TestWithParam<LateRunCase> {
 protected:
  void SetUp() override {
    prepare_tiny_data(folder_ / "data");
    config_ = tiny_config();
    config_.data.batch_size = 2;
    config_.gradient_accumulation.micro_batches = 2;
    config_.training.threads = 1;
    config_.checkpoint.every_steps = 10;
    config_.phases.method = GetParam().local_steps > 0 ? "local_sgd" : "asynchronous_gradients";
    config_.phases.local_sgd.steps = GetParam().local_steps;
    config_.distributed.zero = GetParam().zero;
    config_.phases.local_sgd.fragments = GetParam().fragments;
    config_.phases.local_sgd.exchange_bits = GetParam().bits;
    config_.phases.max_predict_steps = 100;
    config_.phases.asynchronous_gradients.prediction_error_limit = 0;
  }
  /// Returns how the run of each rank ended. Rank 1 requests a stop after step `stops_after`.
  std::array<RunEnd, 2> train(const fs::path& run, bool resume, std::int64_t stops_after = 0) {
    const Interruption interruption;
    std::array<RunEnd, 2> ends{};
    run_thread_ranks(2, [&](Communicator& rank) {
      TrainingRunSettings settings{.config = config_,
                                   .data = folder_ / "data",
                                   .run = run,
                                   .resume = resume,
                                   .init_from = {},
                                   .command = "test"};
      settings.interruption = &interruption;
      settings.ranks = &rank;
      settings.on_step = [&](const StepRecord& record) {
        if (rank.rank() != 1 || record.step != stops_after) return;
        ::kill(::getpid(), SIGTERM);
        while (!interruption.requested()) std::this_thread::yield();  // another thread handles it
      };
      std::ostringstream console;
      ends[static_cast<std::size_t>(rank.rank())] = run_training(settings, console).end;
      if (rank.rank() == 0) told_ = console.str();
    });
    return ends;
  }
  TemporaryFolder folder_;
  HybridTrainerConfig config_;
  std::string told_;  // console of rank 0 in the latest run
};

TEST_P(LateRun, RanksStopAtSameStepInPredict) {
  const fs::path run = folder_ / "run";
  for (const RunEnd end : train(run, false, 22)) EXPECT_EQ(end, RunEnd::kInterrupted);
  const std::size_t done = records_of(run).size();
  EXPECT_GE(done, 22u);
  EXPECT_LT(done, 38u);
  EXPECT_EQ(records_of(run / "ranks/1").size(), done);
  for (const RunEnd end : train(run, true)) EXPECT_EQ(end, RunEnd::kFinished);
  EXPECT_EQ(records_of(run).size(), 40u);
  EXPECT_EQ(records_of(run / "ranks/1").size(), 40u);
}

TEST_P(LateRun, KilledRunResumesToSameWeights) {
  const fs::path run = folder_ / "run", again = folder_ / "again";
  train(run, false);
  copy_up_to(run, again, 20, 40);
  EXPECT_NE(newest_checkpoint_digest(again), newest_checkpoint_digest(run));
  train(again, true);
  EXPECT_EQ(newest_checkpoint_digest(again), newest_checkpoint_digest(run));
}

/// Evaluations and comparisons use the exact weights.
TEST_P(LateRun, EvaluationsAndWeightChecksChangeNothing) {
  const fs::path run = folder_ / "run", other = folder_ / "other";
  train(run, false);
  config_.training.evaluate_every_steps = 5;
  config_.distributed.check_weights_every = 7;
  train(other, false);
  EXPECT_EQ(newest_checkpoint_digest(other), newest_checkpoint_digest(run));
}

TEST_P(LateRun, ReportsExchangeForm) {
  config_.training.steps = 2;
  train(folder_ / "run", false);
  const bool has_form = GetParam().fragments > 1;
  EXPECT_EQ(told_.find("late; sent in 3 fragments with 4 bits per weight") != std::string::npos,
            has_form);
  EXPECT_EQ(told_.find("; sent") != std::string::npos, has_form);
}

INSTANTIATE_TEST_SUITE_P(Each, LateRun,
                         ::testing::Values(LateRunCase{"gradients", 0, 0},
                                           LateRunCase{"gradients_zero_1", 0, 1},
                                           LateRunCase{"local_steps", 4, 0},
                                           LateRunCase{"fragments_by_4_bits", 6, 0, 3, 4}),
                         [](const auto& info) { return std::string(info.param.name); });

}  // namespace
}  // namespace hybrid_trainer
