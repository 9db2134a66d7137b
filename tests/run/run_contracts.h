#pragma once

#include <gtest/gtest.h>

#include <filesystem>
#include <functional>
#include <set>
#include <sstream>
#include <string>
#include <utility>
#include <vector>

#include "hybrid_trainer/core/error.h"
#include "src/distributed/host_ranks.h"
#include "tests/support/tiny_run.h"

namespace hybrid_trainer {

/// Contracts of all kinds of runs. settings() configures a run of the kind.
class RunContracts : public ::testing::Test {
 protected:
  using Change = std::function<void(HybridTrainerConfig&)>;

  virtual TrainingRunSettings settings(const HybridTrainerConfig& config,
                                       const std::string& run) const = 0;
  TrainingRunResult train(const HybridTrainerConfig& config, const std::string& run,
                          bool resume = false) {
    TrainingRunSettings all = settings(config, run);
    all.resume = resume;
    console_.str("");
    return run_training(all, console_);
  }
  std::string trained(const HybridTrainerConfig& config, const std::string& run) {
    train(config, run);
    return newest_checkpoint_digest(scratch_ / run);
  }
  std::string trained_over(int count, const HybridTrainerConfig& config, const std::string& run,
                           bool resume = false) const {
    const Interruption interruption;
    run_thread_ranks(count, [&](Communicator& ranks) {
      std::ostringstream console;
      TrainingRunSettings all = settings(config, run);
      all.interruption = &interruption;
      all.ranks = &ranks;
      all.resume = resume;
      run_training(all, console);
    });
    return newest_checkpoint_digest(scratch_ / run);
  }
  /// Returns the message of the error that ends the run before it starts.
  std::string refusal(const HybridTrainerConfig& config) {
    try {
      train(config, "refused");
    } catch (const Error& error) {
      EXPECT_FALSE(std::filesystem::exists(scratch_ / "refused"));
      return error.what();
    }
    return "nothing was thrown";
  }
  /// Expects a run stopped after each of `steps` and resumed to have an uninterrupted one's bits.
  void expect_resumes(HybridTrainerConfig config, const std::string& name,
                      const std::vector<std::int64_t>& steps) {
    config.checkpoint.every_steps = 1;
    config.checkpoint.keep = 100;
    const std::string whole = trained(config, name);
    for (const StepRecord& record : records_of(scratch_ / name)) seen_.insert(record.phase);
    for (const std::int64_t step : steps) {
      const std::string run = concat(name, "-cut", step);
      copy_up_to(scratch_ / name, scratch_ / run, step, config.training.steps);
      train(config, run, true);
      EXPECT_EQ(newest_checkpoint_digest(scratch_ / run), whole)
          << name << " stopped after step " << step;
    }
  }
  /// Expects that two ranks have the bits of one, with any sharding.
  void expect_bits_of_one_rank(HybridTrainerConfig config) {
    const std::string one = trained(config, "one");
    for (const std::int64_t zero : {0, 1, 2, 3}) {
      config.distributed.zero = zero;
      EXPECT_EQ(trained_over(2, config, concat("zero", zero)), one) << "zero " << zero;
    }
  }
  static std::vector<std::pair<const char*, Change>> memory_options() {
    return {{"recomputed", [](auto& config) { config.memory.recompute = 1; }},
            {"activations", [](auto& config) { config.memory.activations = "host"; }},
            {"weights", [](auto& config) { config.memory.weights = "host"; }},
            {"state", [](auto& config) { config.memory.optimizer_state = "file"; }},
            {"gradients", [](auto& config) { config.memory.gradients = "consume"; }},
            {"paged", [](auto& config) { config.optimizer.paged = true; }}};
  }
  void expect_same_bits(const HybridTrainerConfig& plain,
                        const std::vector<std::pair<const char*, Change>>& changes) {
    const std::string whole = trained(plain, "plain");
    for (const auto& [what, change] : changes) {
      HybridTrainerConfig config = plain;
      change(config);
      EXPECT_EQ(trained(config, what), whole) << what;
    }
  }

  const TemporaryFolder scratch_;
  std::ostringstream console_;
  std::set<Phase> seen_;  // phases of the resumed runs
};

}  // namespace hybrid_trainer
