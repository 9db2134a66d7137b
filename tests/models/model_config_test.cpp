#include "hybrid_trainer/models/model_config.h"

#include <gtest/gtest.h>

#include "src/files/config_fields.h"

namespace hybrid_trainer::testing {
namespace {

ModelConfig mixture() {
  ModelConfig model{.family = "granitemoe", .dropout = 0.1};
  model.experts = {.count = 8, .balance_loss = 0.01};
  return model;
}

TEST(ModelConfig, FolderModelTakesOnlyTrainingSettings) {
  ModelConfig asked = mixture();
  asked.dropout = 0.2;
  asked.layers = 99;
  asked.experts = {.count = 4, .balance_loss = 0, .bias_rate = 0.001, .z_loss = 0.5};
  asked.attention_pattern.local_blocks = 2;
  const ModelConfig model = with_training_of(mixture(), asked);
  EXPECT_EQ(model.layers, mixture().layers);
  EXPECT_EQ(model.experts.count, 8);
  EXPECT_EQ(model.dropout, 0.2);
  EXPECT_EQ(model.experts.balance_loss, 0);
  EXPECT_EQ(model.experts.z_loss, 0.5);
  EXPECT_EQ(model.experts.bias_rate, 0.001);
  EXPECT_EQ(model.attention_pattern.local_blocks, 2);
}

TEST(ModelConfig, WarnsAboutRouterWithConstantWeights) {
  struct Case {
    ExpertConfig experts;
    bool is_told;
  };
  for (const auto& [experts, is_told] :
       {Case{{.count = 4, .chosen = 1, .rule = kSoftmaxOfChosenRule}, true},
        Case{{.count = 4, .chosen = 2, .rule = kSoftmaxOfChosenRule}, false},
        Case{{.count = 4, .chosen = 1, .rule = kSoftmaxRule}, false},
        Case{{.count = 4, .chosen = 1, .rule = kSoftmaxOfChosenRule, .balance_loss = 0.1}, false},
        Case{{.count = 1, .chosen = 1, .rule = kSoftmaxOfChosenRule}, false}})
    EXPECT_EQ(!untrained_router_warning(experts).empty(), is_told)
        << experts.count << experts.chosen << experts.rule;
}

TEST(ModelConfig, ZerosOfOtherFamilyDoNotOverride) {
  ModelConfig asked;  // gpt2, without experts
  EXPECT_EQ(with_training_of(mixture(), asked).experts.balance_loss, 0.01);
  asked.experts.balance_loss = 0.3;
  EXPECT_EQ(with_training_of(mixture(), asked).experts.balance_loss, 0.3);
}

TEST(ModelConfig, JsonKeepsConstantsSetInCode) {
  ModelConfig config{.family = "semiseparable"};
  EXPECT_EQ(config_json(config).find("imaginary"), std::string::npos);
  config.attention_pattern.seed = 7;
  config.semiseparable.imaginary = 0.5;
  config.semiseparable.limit = 2;
  ModelConfig read;
  read_config_text(read, config_json(config), "config.json");
  EXPECT_EQ(read.attention_pattern.seed, 7);
  EXPECT_EQ(read.semiseparable.imaginary, 0.5);
  EXPECT_EQ(read.semiseparable.limit, 2);
}

}  // namespace
}  // namespace hybrid_trainer::testing
