#include "src/config/config_changes.h"

#include <gtest/gtest.h>

#include "hybrid_trainer/core/error.h"
#include "hybrid_trainer/data/token_dataset.h"
#include "src/files/checkpoint.h"
#include "src/files/config_fields.h"
#include "src/files/output_file.h"
#include "tests/support/tiny_run.h"

namespace hybrid_trainer {
namespace {

HybridTrainerConfig with(const std::string& path, const std::string& value) {
  HybridTrainerConfig config = tiny_config();
  set_field(config, path, value);
  return config;
}

TEST(ConfigChanges, EqualConfigsHaveNone) {
  const ConfigChanges changes = config_changes(tiny_config(), tiny_config());
  EXPECT_TRUE(changes.accepted.empty() && changes.refused.empty());
  check_changes(changes);
}

TEST(ConfigChanges, ReportsChangesCompatibleWithSavedState) {
  for (const auto& [path, value] : std::vector<std::pair<std::string, std::string>>{
           {"training.steps", "99"},
           {"training.evaluate_every_steps", "7"},
           {"training.threads", "1"},
           {"memory.device_budget", "100MB"},
           {"checkpoint.every_steps", "3"},
           {"checkpoint.keep", "9"},
           {"device", "cpu"},
           {"optimizer.learning_rate", "0.5"},
           {"optimizer.orthogonalization_period", "5"},
           {"optimizer.orthogonalization_blocks", "4"},
           {"schedule.name", "constant"},
           {"divergence.max_roll_backs", "9"},
           {"predict_aware_memory.offload_strategy", "none"}}) {
    const ConfigChanges changes = config_changes(tiny_config(), with(path, value));
    EXPECT_TRUE(changes.refused.empty()) << path;
    ASSERT_EQ(changes.accepted.size(), 1u) << path;
    EXPECT_EQ(changes.accepted.front().find(path + ": "), 0u) << changes.accepted.front();
    EXPECT_NE(changes.accepted.front().find(value + " from now on"), std::string::npos)
        << changes.accepted.front();
  }
}

TEST(ConfigChanges, DetectsGroupChangesToLastDigit) {
  const auto before = with("optimizer.groups", R"([{"match": "vector", "epsilon": 1.0000001e-8}])");
  const auto after = with("optimizer.groups", R"([{"match": "vector", "epsilon": 1.0000002e-8}])");
  EXPECT_TRUE(config_changes(before, before).refused.empty());
  const std::vector<std::string> refused = config_changes(before, after).refused;
  ASSERT_EQ(refused.size(), 1u);
  EXPECT_EQ(refused[0],
            "optimizer.groups[0].epsilon: the run was saved with 1.0000001e-08, got "
            "1.0000002e-08");
  const auto more = with("optimizer.groups", R"([{"match": "vector"}, {"match": "matrix"}])");
  EXPECT_EQ(config_changes(before, more).refused.size(), 1u);
}

TEST(ConfigChanges, ReportsGroupRateAndDecayChanges) {
  const auto before = with("optimizer.groups", R"([{"match": "vector", "weight_decay": 0.5}])");
  const auto after = with("optimizer.groups", R"([{"match": "vector", "learning_rate": 0.25}])");
  const ConfigChanges changes = config_changes(before, after);
  EXPECT_TRUE(changes.refused.empty());
  ASSERT_EQ(changes.accepted.size(), 2u);
  EXPECT_EQ(changes.accepted[0],
            "optimizer.groups[0].learning_rate: left out until now, 0.25 from now on");
  EXPECT_EQ(changes.accepted[1],
            "optimizer.groups[0].weight_decay: 0.5 until now, left out from now on");
}

TEST(ConfigChanges, PrecisionChangeKeepsSavedChoice) {
  const ConfigChanges changes = config_changes(tiny_config(), with("mixed_precision.full", "bf16"));
  ASSERT_EQ(changes.accepted.size(), 1u);
  EXPECT_NE(changes.accepted.front().find("the run keeps its value"), std::string::npos);
}

TEST(ConfigChanges, RejectsIncompatibleChangesByName) {
  for (const auto& [path, value] : std::vector<std::pair<std::string, std::string>>{
           {"optimizer.name", "muon"},
           {"optimizer.betas", "[0.8, 0.9]"},
           {"optimizer.state_bits", "8"},
           {"optimizer.momentum", "0.5"},
           {"training.seed", "7"},
           {"data.batch_size", "8"},
           {"data.sequence_length", "8"},
           {"data.shuffle", "false"},
           {"gradient_accumulation.micro_batches", "2"},
           {"phases.skip_backward.confidence_threshold", "0.5"},
           {"phases.skip_backward.predictor", "linear"},
           {"model.width", "32"},
           {"model.dropout", "0.1"}}) {
    const ConfigChanges changes = config_changes(tiny_config(), with(path, value));
    EXPECT_TRUE(changes.accepted.empty()) << path;
    try {
      check_changes(changes);
      FAIL() << path << " was accepted";
    } catch (const ConfigError& error) {
      const std::string text = error.what();
      EXPECT_NE(text.find(path + ": the run was saved with "), std::string::npos) << text;
      EXPECT_NE(text.find(", got " + value), std::string::npos) << text;
      EXPECT_NE(text.find("--resume"), std::string::npos) << text;
    }
  }
}

TEST(ConfigChanges, ReportsLearningRateJump) {
  const HybridTrainerConfig saved = tiny_config();  // cosine over 40 steps
  HybridTrainerConfig now = saved;
  now.training.steps = 80;
  const std::string text = learning_rate_jump(saved, now, 40);
  EXPECT_NE(text.find("the learning rate goes from 0.00015"), std::string::npos) << text;
  EXPECT_NE(text.find("--set schedule.name=constant --set optimizer.learning_rate=0.00015"),
            std::string::npos)
      << text;
  now.schedule.name = "constant";
  now.optimizer.learning_rate = 0.00015;
  EXPECT_EQ(learning_rate_jump(saved, now, 40), "");
  EXPECT_EQ(learning_rate_jump(saved, saved, 20), "");
  EXPECT_EQ(learning_rate_jump(saved, saved, 40), "") << "nothing is left to do";
}

class ResumeWithAnotherConfig : public ::testing::Test {
 protected:
  void SetUp() override {
    prepare_tiny_data(scratch_ / "data");
    train_tiny(tiny_config(), scratch_ / "data", scratch_ / "run");
  }
  void expect_refused(const std::string& path, const std::string& value) {
    HybridTrainerConfig config = with(path, value);
    config.training.steps = 60;
    try {
      train_tiny(config, scratch_ / "data", scratch_ / "run", true);
      FAIL() << path << " was accepted";
    } catch (const ConfigError& error) {
      EXPECT_NE(std::string(error.what()).find(path), std::string::npos) << error.what();
    }
  }
  TemporaryFolder scratch_;
};

TEST_F(ResumeWithAnotherConfig, RejectionLeavesRunIntact) {
  const std::string before = newest_checkpoint_digest(scratch_ / "run");
  for (const auto& [path, value] : std::vector<std::pair<std::string, std::string>>{
           {"optimizer.name", "muon"}, {"training.seed", "7"}, {"phases.full_steps", "7"}}) {
    expect_refused(path, value);
  }
  EXPECT_EQ(newest_checkpoint_digest(scratch_ / "run"), before);
  HybridTrainerConfig longer = tiny_config();
  longer.training.steps = 60;
  std::string console;
  train_tiny(longer, scratch_ / "data", scratch_ / "run", true, &console);
  EXPECT_NE(console.find("training.steps: 40 until now, 60 from now on"), std::string::npos)
      << console;
}

TEST_F(ResumeWithAnotherConfig, ReportsRateJumpWhenFinishedRunContinues) {
  HybridTrainerConfig longer = tiny_config();
  longer.training.steps = 60;
  std::string console;
  train_tiny(longer, scratch_ / "data", scratch_ / "run", true, &console);
  EXPECT_NE(console.find("--set schedule.name=constant"), std::string::npos) << console;
}

/// After rollbacks, and with a rate finder, steps use a fraction of the scheduled rate.
TEST_F(ResumeWithAnotherConfig, ReportsJumpOfScaledLearningRate) {
  const std::string folder = (scratch_ / "run" / "checkpoints").string();
  const Stream stream(MemoryPool::create("host"));
  State state = load_checkpoint(*find_newest_checkpoint(folder).checkpoint, stream);
  const double rate = records_of(scratch_ / "run").back().learning_rate;
  state.reals["trainer.roll_backs.rate_factor"] = 0.25;
  state.reals["phases.learning_rate_finder.factor"] = 2;
  save_checkpoint(folder, 40, {state}, {});
  HybridTrainerConfig longer = tiny_config();
  longer.training.steps = 60;
  std::filesystem::copy(scratch_ / "run", scratch_ / "again",
                        std::filesystem::copy_options::recursive);
  std::string console;
  train_tiny(longer, scratch_ / "data", scratch_ / "again", true, &console);
  const std::string after = brief(records_of(scratch_ / "again").at(40).learning_rate);
  EXPECT_NE(console.find(concat("the learning rate goes from ", brief(0.5 * rate), " to ", after)),
            std::string::npos)
      << console;
  const std::string advice = "--set schedule.name=constant --set optimizer.learning_rate=";
  const auto at = console.find(advice);
  ASSERT_NE(at, std::string::npos) << console;
  longer.schedule.name = "constant";
  longer.optimizer.learning_rate = std::stod(console.substr(at + advice.size()));
  train_tiny(longer, scratch_ / "data", scratch_ / "run", true);
  EXPECT_NEAR(records_of(scratch_ / "run").at(40).learning_rate, 0.5 * rate, 0.01 * rate);
}

TEST_F(ResumeWithAnotherConfig, CanDisablePredictOutsidePredict) {
  HybridTrainerConfig config = tiny_config();
  config.checkpoint.every_steps = 1;
  config.checkpoint.keep = 100;
  train_tiny(config, scratch_ / "data", scratch_ / "each");
  config.phases.max_predict_steps = 0;
  int refused = 0, taken = 0;
  for (const StepRecord& record : records_of(scratch_ / "each")) {
    if (record.step < 12 || record.step > 24) continue;
    const auto cut = scratch_ / concat("cut", record.step);
    copy_up_to(scratch_ / "each", cut, record.step, 40);
    const bool is_within = record.phase == Phase::kPredict;
    ++(is_within ? refused : taken);
    if (is_within) {
      EXPECT_THROW(train_tiny(config, scratch_ / "data", cut, true), ConfigError) << record.step;
      continue;
    }
    EXPECT_EQ(train_tiny(config, scratch_ / "data", cut, true).end, RunEnd::kFinished);
    const auto records = records_of(cut);
    for (auto i = static_cast<std::size_t>(record.step); i < records.size(); ++i)
      EXPECT_NE(records[i].phase, Phase::kPredict) << "after step " << record.step;
  }
  EXPECT_GT(refused, 0);
  EXPECT_GT(taken, 0);
}

TEST_F(ResumeWithAnotherConfig, RejectsMismatchedCheckpointAndConfigFile) {
  HybridTrainerConfig other = with("optimizer.name", "muon");
  other.model.vocabulary = read_data_info(scratch_ / "data")->vocabulary_size;
  replace_file((scratch_ / "run" / "config.json").string(), config_json(other));
  expect_refused("optimizer.name", "muon");
}

TEST_F(ResumeWithAnotherConfig, RejectsOtherData) {
  prepare_tiny_data(scratch_ / "other", 900);
  HybridTrainerConfig longer = tiny_config();
  longer.training.steps = 60;
  try {
    train_tiny(longer, scratch_ / "other", scratch_ / "run", true);
    FAIL() << "other data was accepted";
  } catch (const DataError& error) {
    EXPECT_NE(std::string(error.what()).find("training tokens"), std::string::npos);
    EXPECT_NE(std::string(error.what()).find((scratch_ / "data").string()), std::string::npos);
  }
}

}  // namespace
}  // namespace hybrid_trainer
