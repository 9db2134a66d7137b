#include "src/run/run_settings.h"

#include <gtest/gtest.h>

#include "src/files/config_fields.h"
#include "tests/support/tiny_run.h"

namespace hybrid_trainer {
namespace {

using Settings = std::vector<std::pair<std::string, std::string>>;

HybridTrainerConfig with(const Settings& settings) {
  HybridTrainerConfig config = tiny_config();
  for (const auto& [path, value] : settings) set_field(config, path, value);
  return config;
}

std::string told_of(const std::string& key, const Settings& settings, int ranks = 1) {
  const auto told = inert_settings(with(settings), {key, key}, {{}, ranks});
  EXPECT_LE(told.size(), 1u) << key << " is reported twice";
  return told.empty() ? "" : told.front();
}

/// A key, a value to change it to, and settings under which the change has no effect.
struct Inert {
  std::string key, value;
  Settings settings;
};

const std::vector<Inert>& inert() {
  static const std::vector<Inert> cases{
      {"phases.skip_backward.trial_steps", "5", {{"phases.max_predict_steps", "0"}}},
      {"mixed_precision.predict", "bf16", {{"phases.max_predict_steps", "0"}}},
      {"predict_aware_memory.offload_strategy", "none", {{"phases.max_predict_steps", "0"}}},
      {"phases.skip_backward.predictor", "linear", {{"phases.method", "asynchronous_optimizer"}}},
      {"predict_aware_memory.offload_strategy",
       "none",
       {{"phases.method", "asynchronous_optimizer"}}},
      {"phases.skip_backward.predictor",
       "linear",
       {{"phases.skip_backward.variants", R"([{"predictor": "merged"}])"}}},
      {"phases.asynchronous_optimizer.delay", "3", {}},
      {"phases.local_sgd.steps", "3", {}},
      {"phases.skip_backward.trial_share", "0.5", {{"phases.method", "asynchronous_optimizer"}}},
      {"phases.asynchronous_optimizer.exact_state", "file", {}},
      {"phases.local_sgd.outer_momentum", "0.5", {}},
      {"phases.skip_backward.slow_steps", "2", {}},
      {"model.state_space.taps", "2", {{"model.family", "semiseparable"}, {"model.mixers", "t"}}},
      {"model.attention_pattern.block", "32", {}},
      {"model.semiseparable.rank", "2", {{"model.family", "semiseparable"}, {"model.mixers", "a"}}},
      {"model.semiseparable.potentials",
       "2",
       {{"model.family", "semiseparable"}, {"model.mixers", "t"}}},
      {"memory.kept_segments", "2", {}},
      {"memory.segment_length",
       "128",
       {{"memory.segment_length", "64"}, {"model.family", "mistral"}, {"model.window", "8"}}},
      {"memory.allow_lossy", "true", {}},
      {"memory.folder", "/nowhere", {}},
      {"training.cuda_graphs", "true", {}},
      {"schedule.final_fraction", "0.5", {{"schedule.name", "constant"}}},
      {"schedule.decay_share", "0.9", {}},
      {"optimizer.momentum", "0.1", {}},
      {"optimizer.betas", "[0.1, 0.2]", {{"optimizer.name", "sgd"}}},
      {"optimizer.epsilon", "1", {{"optimizer.name", "lion"}}},
      {"optimizer.orthogonalization_period", "3", {}},
      {"optimizer.orthogonalization_blocks", "4", {{"optimizer.name", "muon"}}},
      {"optimizer.slow_momentum_steps", "3", {}},
      {"lora.alpha", "3", {}},
      {"data.validation_fraction", "0.5", {}},
      {"checkpoint.every_epochs", "3", {}},
      {"checkpoint.keep_best", "1", {}},
      {"training.min_improvement", "0.5", {}},
      {"preference_beta", "0.5", {}},
      {"distributed.zero", "2", {}},
      {"divergence.max_roll_backs", "0", {}}};
  return cases;
}

TEST(InertKeys, AreReportedWithReason) {
  for (const Inert& one : inert()) {
    const std::string text = told_of(one.key, one.settings);
    EXPECT_TRUE(text.starts_with(one.key + " is set, but has no effect here: ")) << one.key;
  }
  EXPECT_NE(told_of("schedule.final_fraction", {{"schedule.name", "constant"}}).find("constant"),
            std::string::npos);
  EXPECT_NE(told_of("training.label_smoothing", {{"model.family", "series"}}).find("numbers"),
            std::string::npos);
  EXPECT_EQ(told_of("training.label_smoothing", {}), "");
}

TEST(InertKeys, DoNotChangeResult) {
  const TemporaryFolder scratch;
  prepare_tiny_data(scratch / "data");
  int count = 0;
  const auto digest = [&](const Settings& settings) {
    const auto run = scratch / concat("run", count++);
    HybridTrainerConfig config = with(settings);
    config.training.steps = 30;
    train_tiny(config, scratch / "data", run);
    return newest_checkpoint_digest(run);
  };
  for (const Inert& one : inert()) {
    Settings flipped = one.settings;
    flipped.emplace_back(one.key, one.value);
    EXPECT_EQ(digest(flipped), digest(one.settings)) << one.key;
  }
}

TEST(InertKeys, AreNotReportedWhenEffective) {
  EXPECT_EQ(told_of("phases.skip_backward.trial_steps", {}), "");
  EXPECT_EQ(
      told_of("phases.asynchronous_optimizer.delay", {{"phases.method", "asynchronous_optimizer"}}),
      "");
  EXPECT_EQ(told_of("memory.kept_segments", {{"data.sequence_length", "4097"}}), "");
  EXPECT_EQ(told_of("memory.segment_length",
                    {{"memory.segment_length", "64"}, {"data.sequence_length", "65"}}),
            "");
  EXPECT_EQ(told_of("memory.folder", {{"memory.weights", "file"}}), "");
  EXPECT_EQ(told_of("optimizer.momentum", {{"optimizer.name", "muon"}}), "");
  EXPECT_EQ(told_of("optimizer.momentum",
                    {{"optimizer.groups", R"([{"match": "embedding", "name": "sgd"}])"}}),
            "");
  EXPECT_EQ(told_of("distributed.zero", {}, 2), "");
  EXPECT_EQ(told_of("checkpoint.every_minutes", {}), "");
  EXPECT_NE(told_of("checkpoint.every_minutes", {{"divergence.on_critical", "roll_back"}}), "");
}

TEST(InertKeys, OtherMethodsKeysShareOneWarning) {
  const Settings settings{{"phases.method", "asynchronous_optimizer"}};
  EXPECT_EQ(
      inert_settings(with(settings),
                     {"phases.local_sgd.steps", "phases.local_sgd.fragments",
                      "phases.asynchronous_optimizer.delay", "phases.local_sgd.outer_momentum",
                      "phases.skip_backward.trial_share"},
                     {}),
      std::vector<std::string>{
          "phases.local_sgd.steps, phases.local_sgd.fragments, phases.local_sgd.outer_momentum, "
          "phases.skip_backward.trial_share are set, but have no effect here: phases.method is "
          "asynchronous_optimizer"});
}

}  // namespace
}  // namespace hybrid_trainer
