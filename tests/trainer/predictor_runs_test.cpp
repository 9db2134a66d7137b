// Complete runs with predictors that use more than the optimizer's state, and of models with
// recurrent layers: through all phases, stopped and resumed, reverted, and with offloaded memory.
#include <gtest/gtest.h>

#include "src/files/config_fields.h"
#include "tests/support/tiny_run.h"

namespace hybrid_trainer {
namespace {

constexpr const char* kArms = R"([{"predictor": "two_timescale", "steps": 3},
                                  {"predictor": "merged", "steps": 5}])";

constexpr const char* kModel = "model";

/// A config key and its value, or kModel and the family of a tiny_model.
class PredictorRuns : public ::testing::TestWithParam<std::pair<const char*, const char*>> {
 protected:
  void SetUp() override { prepare_tiny_data(data_); }
  static HybridTrainerConfig config() {
    HybridTrainerConfig config = tiny_config();
    if (GetParam().first == kModel) {
      config.model = tiny_model(GetParam().second);
    } else {
      set_field(config, GetParam().first, GetParam().second);
    }
    config.phases.skip_backward.history_interval = 2;
    config.phases.skip_backward.slow_steps = 4;
    return config;
  }
  TemporaryFolder scratch_;
  std::filesystem::path data_ = scratch_ / "data";
};

TEST_P(PredictorRuns, RunsAllPhasesAndResumesBitwise) {
  HybridTrainerConfig config = PredictorRuns::config();
  config.checkpoint.every_steps = 1;
  config.checkpoint.keep = 100;
  const TrainingRunResult whole = train_tiny(config, data_, scratch_ / "whole");
  for (const Phase phase : kAllPhases) EXPECT_GT(whole.summary.phase(phase).steps, 0);
  const std::string wanted = newest_checkpoint_digest(scratch_ / "whole");
  for (int stop = 1; stop < 40; stop += 3) {
    const auto run = scratch_ / ("cut" + std::to_string(stop));
    copy_up_to(scratch_ / "whole", run, stop, 40);
    train_tiny(config, data_, run, true);
    EXPECT_EQ(newest_checkpoint_digest(run), wanted) << "stopped after step " << stop;
  }
}

TEST_P(PredictorRuns, RevertedRunMatchesPlainRun) {
  HybridTrainerConfig config = PredictorRuns::config();
  config.phases.skip_backward.max_shrinks = 0;
  config.phases.skip_backward.decay = 1;
  // So large that every predicted step overshoots.
  config.optimizer.learning_rate = GetParam().first == kModel ? 3 : 0.3;
  const TrainingRunResult result = train_tiny(config, data_, scratch_ / "reverted");
  ASSERT_GT(result.summary.predictions.made, 0);
  ASSERT_EQ(result.summary.predictions.reverted, result.summary.predictions.made);
  config.phases.max_predict_steps = 0;
  const TrainingRunResult plain = train_tiny(config, data_, scratch_ / "plain");
  EXPECT_EQ(*result.summary.final_validation_loss, *plain.summary.final_validation_loss);
  EXPECT_EQ(result.summary.final_average_validation_loss,
            plain.summary.final_average_validation_loss);
}

TEST_P(PredictorRuns, MemoryPlacementDoesNotChangeResults) {
  HybridTrainerConfig config = PredictorRuns::config();
  train_tiny(config, data_, scratch_ / "near");
  const std::string wanted = newest_checkpoint_digest(scratch_ / "near");
  for (const char* place : {"host", "file"}) {
    config.memory.weights = config.memory.optimizer_state = place;
    train_tiny(config, data_, scratch_ / place);
    EXPECT_EQ(newest_checkpoint_digest(scratch_ / place), wanted) << place;
  }
  config.memory.device_map = "w*e.*=host,h.0.*=device";  // the rest in a file
  train_tiny(config, data_, scratch_ / "map");
  EXPECT_EQ(newest_checkpoint_digest(scratch_ / "map"), wanted);
}

INSTANTIATE_TEST_SUITE_P(All, PredictorRuns,
                         ::testing::Values(std::pair{"phases.skip_backward.predictor", "linear"},
                                           std::pair{"phases.skip_backward.predictor",
                                                     "two_timescale"},
                                           std::pair{"phases.skip_backward.predictor", "merged"},
                                           std::pair{"optimizer.slow_momentum", "0.5"},
                                           std::pair{"training.average_weights", "4"},
                                           std::pair{"phases.skip_backward.variants", kArms},
                                           std::pair{kModel, "qwen3_5"}),
                         [](const auto& info) {
                           const std::string key = info.param.first;
                           return key == "phases.skip_backward.predictor" || key == kModel
                                      ? std::string(info.param.second)
                                      : key.substr(key.rfind('.') + 1);
                         });

}  // namespace
}  // namespace hybrid_trainer
