#include <gtest/gtest.h>

#include <algorithm>
#include <set>

#include "hybrid_trainer/core/error.h"
#include "hybrid_trainer/nn/expert_mixture.h"
#include "src/files/checkpoint.h"
#include "src/run/run_files.h"
#include "tests/support/model_folders.h"
#include "tests/support/test_tensors.h"
#include "tests/support/tiny_run.h"

// Runs of mixtures of experts through all phases.
namespace hybrid_trainer {
namespace {

namespace fs = std::filesystem;

HybridTrainerConfig routed() {
  HybridTrainerConfig config = tiny_config();
  config.model.family = "mixtral";
  config.model.layers = 2;
  config.model.experts = {.count = 4, .chosen = 1, .bias_rate = 0.02};
  config.optimizer.learning_rate = 2e-2;
  config.checkpoint.every_steps = 1;
  config.checkpoint.keep = 100;
  return config;
}

class RoutedRunTest : public ::testing::Test {
 protected:
  RoutedRunTest() { prepare_tiny_data(data_); }

  void expect_same_bits_after_a_stop(const HybridTrainerConfig& config) {
    train_tiny(config, data_, scratch_ / "whole");
    const std::string wanted = newest_checkpoint_digest(scratch_ / "whole");
    const std::vector<StepRecord> records = records_of(scratch_ / "whole");
    std::set<std::pair<Phase, bool>> tried;  // first and later steps of each phase
    for (std::size_t i = 0; i + 1 < records.size(); ++i) {
      const bool is_first = i == 0 || records[i - 1].phase != records[i].phase;
      if (!tried.insert({records[i].phase, is_first}).second) continue;
      const fs::path run = scratch_ / concat("cut", records[i].step);
      copy_up_to(scratch_ / "whole", run, records[i].step, config.training.steps);
      train_tiny(config, data_, run, true);
      EXPECT_EQ(newest_checkpoint_digest(run), wanted) << "stopped after " << records[i].step;
      EXPECT_EQ(flips_of(run), flips_of(scratch_ / "whole")) << records[i].step;
    }
    EXPECT_GE(tried.size(), kPhases);
  }
  static std::vector<double> flips_of(const fs::path& run) {
    std::vector<double> flips;
    for (const StepRecord& record : records_of(run))
      flips.push_back(record.routing_flips.value_or(-1));
    return flips;
  }
  const Stream stream_ = Stream(MemoryPool::create("test"));
  const TemporaryFolder scratch_;
  const fs::path data_ = scratch_ / "data";
};

TEST_F(RoutedRunTest, ResumesFromAnyPhaseBitwise) { expect_same_bits_after_a_stop(routed()); }

TEST_F(RoutedRunTest, AsynchronousOptimizerResumesBitwise) {
  HybridTrainerConfig config = routed();
  config.phases.method = "asynchronous_optimizer";
  expect_same_bits_after_a_stop(config);
}

TEST_F(RoutedRunTest, CountsRoutingFlipsInPredict) {
  HybridTrainerConfig config = routed();
  config.optimizer.learning_rate = 0.1;
  config.model.experts = {.count = 16, .chosen = 4};
  train_tiny(config, data_, scratch_ / "run");
  double most = 0;
  for (const StepRecord& record : records_of(scratch_ / "run")) {
    EXPECT_EQ(record.routing_flips.has_value(), record.phase == Phase::kPredict) << record.step;
    most = std::max(most, record.routing_flips.value_or(0));
    EXPECT_LE(most, 1);
  }
  EXPECT_GT(most, 0);
}

TEST_F(RoutedRunTest, SelectionBiasBalancesLoadsAndIsSaved) {
  const auto uneven = [&](double rate) {
    HybridTrainerConfig config = routed();
    config.model.experts.bias_rate = rate;
    config.training.steps = 60;
    train_tiny(config, data_, scratch_ / concat("rate", rate));
    double sum = 0;
    for (const StepRecord& record : records_of(scratch_ / concat("rate", rate)))
      if (record.step > 30)
        for (const double most : record.experts.most) sum += most;
    return sum;
  };
  EXPECT_LT(uneven(0.02), 0.9 * uneven(0));
  const TrainedRun run = load_trained_run(scratch_ / "rate0.02", stream_);
  double largest = 0;
  run.model().visit_routings([&](RoutedExperts& experts) {
    for (const double bias : testing::values_of(experts.selection_bias()))
      largest = std::max(largest, bias);
  });
  EXPECT_GT(largest, 0.05);
  EXPECT_THROW(export_hugging_face(run.model(), nullptr, scratch_ / "out", stream_), DataError);
}

TEST_F(RoutedRunTest, RejectsSelectionBiasWithAdapters) {
  HybridTrainerConfig config = routed();
  config.lora.rank = 2;
  EXPECT_THROW(config.validate(), ConfigError);
}

}  // namespace
}  // namespace hybrid_trainer
