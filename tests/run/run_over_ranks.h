#pragma once

#include <gtest/gtest.h>

#include <filesystem>
#include <sstream>

#include "src/distributed/host_ranks.h"
#include "tests/support/tiny_run.h"

namespace hybrid_trainer {

/// Runs of `hybrid train` with ranks that are threads.
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
  TrainingRunResult train_rank(const HybridTrainerConfig& config, const std::filesystem::path& run,
                               bool resume, Communicator& ranks) const {
    return train_rank(config, run, resume, ranks, data_);
  }
  TrainingRunResult train_rank(const HybridTrainerConfig& config, const std::filesystem::path& run,
                               bool resume, Communicator& ranks,
                               const std::filesystem::path& data) const {
    std::ostringstream console;
    TrainingRunSettings settings{.config = config,
                                 .data = data,
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
  void train(const HybridTrainerConfig& config, const std::filesystem::path& run, int ranks,
             bool resume = false) const {
    run_thread_ranks(ranks, [&](Communicator& rank) { train_rank(config, run, resume, rank); });
  }
  TemporaryFolder scratch_;
  std::filesystem::path data_ = scratch_ / "data";
  Interruption interruption_;
};

}  // namespace hybrid_trainer
