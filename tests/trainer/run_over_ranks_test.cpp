#include <gtest/gtest.h>

#include "hybrid_trainer/core/error.h"
#include "hybrid_trainer/distributed/single_communicator.h"
#include "hybrid_trainer/distributed/thread_communicator.h"
#include "tests/trainer/tiny_run.h"

namespace hybrid_trainer {
namespace {

namespace fs = std::filesystem;

class RunOverRanks : public ::testing::Test {
 protected:
  void SetUp() override { prepare_tiny_data(data_); }

  HybridTrainerConfig config() const {
    HybridTrainerConfig config = tiny_config();
    config.data.batch_size = 2;
    config.gradient_accumulation.micro_batches = 4;
    config.training.threads = 1;
    return config;
  }
  TrainingRunResult train_rank(const HybridTrainerConfig& config, const fs::path& run, bool resume,
                               Communicator& ranks) const {
    std::ostringstream console;
    TrainingRunSettings settings{.config = config,
                                 .data = data_,
                                 .run = run,
                                 .resume = resume,
                                 .init_from = {},
                                 .command = "test"};
    settings.interruption = &interruption_;
    settings.ranks = &ranks;
    const TrainingRunResult result = run_training(settings, console);
    EXPECT_EQ(console.str().empty(), ranks.rank() > 0);
    return result;
  }
  void train(const HybridTrainerConfig& config, const fs::path& run, int ranks,
             bool resume = false) const {
    run_thread_ranks(ranks, [&](Communicator& rank) { train_rank(config, run, resume, rank); });
  }
  TemporaryFolder scratch_;
  fs::path data_ = scratch_ / "data";
  Interruption interruption_;
};

TEST_F(RunOverRanks, LeavesTheCheckpointsOfOne) {
  train(config(), scratch_ / "one", 1);
  const std::string wanted = newest_checkpoint_digest(scratch_ / "one");
  for (const int ranks : {2, 3, 4}) {
    const fs::path run = scratch_ / concat("ranks", ranks);
    train(config(), run, ranks);
    EXPECT_EQ(newest_checkpoint_digest(run), wanted) << ranks << " ranks";
    EXPECT_EQ(records_of(run).size(), 40u);
    EXPECT_EQ(records_of(run / "ranks/1").size(), 40u);
    EXPECT_TRUE(fs::file_size(run / "ranks/1/log.txt") > 0);
    EXPECT_FALSE(fs::exists(run / "ranks/0"));
    EXPECT_FALSE(fs::exists(run / "ranks/1/checkpoints"));
  }
}

TEST_F(RunOverRanks, GoesOnWithAnotherNumberOfThem) {
  train(config(), scratch_ / "one", 1);
  const std::string wanted = newest_checkpoint_digest(scratch_ / "one");
  const fs::path run = scratch_ / "run";
  train(config(), run, 3);
  for (const char* const left : {"step-0000000040", "step-0000000030"})
    ASSERT_GT(fs::remove_all(run / "checkpoints" / left), 0u);
  train(config(), run, 2, true);
  EXPECT_EQ(newest_checkpoint_digest(run), wanted);
}

TEST_F(RunOverRanks, TellsInItsSummaryWhatWasSent) {
  run_thread_ranks(2, [&](Communicator& rank) {
    const TrainingRunResult result = train_rank(config(), scratch_ / "run", false, rank);
    ASSERT_TRUE(result.summary.distributed);
    EXPECT_EQ(result.summary.distributed->ranks, 2);
    EXPECT_GT(result.summary.distributed->bytes_sent, 0u);
    EXPECT_NE(result.summary_json.find("\"distributed\":{\"ranks\":2,\"backend\":\"threads\""),
              std::string::npos);
  });
}

TEST_F(RunOverRanks, RefusesRanksThatDiffer) {
  const auto rank = [&](Communicator& ranks) {
    HybridTrainerConfig own = config();
    own.training.seed += ranks.rank();
    train_rank(own, scratch_ / "run", false, ranks);
  };
  try {
    run_thread_ranks(2, rank);
    FAIL() << "ranks of two seeds trained together";
  } catch (const UsageError& error) {
    const std::string message = error.what();
    EXPECT_NE(message.find("rank 1 differs from rank 0 in the configuration"), message.npos)
        << message;
    EXPECT_NE(message.find("seed"), message.npos) << message;
  }
}

TEST_F(RunOverRanks, RefusesAFolderThatHoldsARun) {
  train(config(), scratch_ / "run", 1);
  EXPECT_THROW(train(config(), scratch_ / "run", 2), CannotCreate);
}

}  // namespace
}  // namespace hybrid_trainer
