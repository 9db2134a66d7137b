#include "src/optim/make_optimizer.h"

#include <gtest/gtest.h>

#include "hybrid_trainer/core/error.h"
#include "tests/optim/parameter_set.h"

namespace hybrid_trainer {
namespace {

using testing::master_of;
using testing::ParameterSet;

class OptimizerGroups : public ::testing::Test {
 protected:
  /// One text per group, such as "adamw 0.01: wide bias".
  std::vector<std::string> groups(const OptimizerConfig& config) {
    std::vector<std::string> texts;
    for (const OptimizerGroup& group : optimizer_groups(config, parameters_.pointers())) {
      std::string text = concat(group.config.name, " ", group.config.learning_rate, ":");
      for (const std::size_t member : group.members) text += " " + parameters_[member].name();
      texts.push_back(text);
    }
    return texts;
  }
  std::string problems(const OptimizerConfig& config) {
    try {
      optimizer_groups(config, parameters_.pointers());
    } catch (const ConfigError& error) {
      return error.what();
    }
    return "none";
  }
  const Stream stream_{MemoryPool::create("device")};
  ParameterSet parameters_{stream_};
};

using Texts = std::vector<std::string>;

TEST_F(OptimizerGroups, SingleGroupByDefault) {
  EXPECT_EQ(groups({.name = "sgd", .learning_rate = 0.5}),
            (Texts{"sgd 0.5: wide embedding tall bias square large"}));
}

TEST_F(OptimizerGroups, MuonTakesMatricesAndAdamWOthers) {
  EXPECT_EQ(groups({.name = "muon", .learning_rate = 0.5}),
            (Texts{"muon 0.5: wide tall square", "adamw 0.5: embedding bias large"}));
}

TEST_F(OptimizerGroups, MatchesByRoleAndPattern) {
  OptimizerConfig config{.name = "muon", .learning_rate = 0.5};
  config.groups = {{.match = "embedding", .name = "sgd", .learning_rate = 0.25},
                   {.match = "*l*l", .name = "adamw"}};
  EXPECT_EQ(groups(config), (Texts{"sgd 0.25: embedding large", "adamw 0.5: tall",
                                   "muon 0.5: wide square", "adamw 0.5: bias"}));
  config.groups = {{.match = "large", .name = "muon"}};
  EXPECT_EQ(groups(config).front(), "muon 0.5: large");
}

TEST_F(OptimizerGroups, GroupWithoutMuonLeavesEmbeddingsToAdamW) {
  OptimizerConfig config{.name = "muon", .learning_rate = 0.5};
  config.groups = {{.match = "embedding", .learning_rate = 0.25}};
  EXPECT_EQ(groups(config), (Texts{"adamw 0.25: embedding large", "muon 0.5: wide tall square",
                                   "adamw 0.5: bias"}));
}

TEST_F(OptimizerGroups, MatchesPatternWithManyStars) {
  OptimizerConfig config{.name = "sgd", .learning_rate = 0.5};
  std::string stars;
  for (int i = 0; i < 40; ++i) stars += "*";
  config.groups = {{.match = stars + "i*d*e*"}};
  EXPECT_EQ(groups(config).front(), "sgd 0.5: wide");
  config.groups = {{.match = stars + "x"}};
  EXPECT_NE(problems(config).find("matches no weight"), std::string::npos);
}

TEST_F(OptimizerGroups, GroupInheritsDefaults) {
  OptimizerConfig config{.name = "adamw", .epsilon = 1e-3, .weight_decay = 0.3};
  const OptimizerConfig group = config.of({.match = "bias", .weight_decay = 0.0});
  EXPECT_EQ(group.weight_decay, 0.0);
  EXPECT_EQ(group.epsilon, 1e-3);
}

TEST_F(OptimizerGroups, ReportsUnmatchedAndDuplicateMatches) {
  OptimizerConfig config;
  config.groups = {{.match = "embeding"}};
  EXPECT_EQ(problems(config),
            "optimizer.groups[0].match: \"embeding\" matches no weight; did you mean embedding?");
  config.groups = {{.match = "matrix"}, {.match = "t*"}};
  EXPECT_EQ(problems(config),
            "optimizer.groups[1].match: \"t*\" matches tall, which already belongs to \"matrix\" "
            "of groups[0]; want each weight in one group");
}

TEST_F(OptimizerGroups, EachGroupMatchesItsOptimizerAlone) {
  ParameterSet twins(stream_);
  OptimizerConfig config{.name = "muon", .learning_rate = 0.01};
  config.groups = {{.match = "embedding", .name = "sgd", .learning_rate = 0.02}};
  const auto grouped = make_optimizer(config, parameters_.pointers(), stream_);
  OptimizerConfig alone = config;
  alone.groups.clear();
  const auto muon = make_optimizer(alone, {&twins[0], &twins[2], &twins[3], &twins[4]}, stream_);
  alone.name = "sgd";
  const auto sgd = make_optimizer(alone, {&twins[1], &twins[5]}, stream_);
  for (std::uint64_t t = 1; t <= 3; ++t) {
    parameters_.set_gradients(t);
    twins.set_gradients(t);
    grouped->step(0.005f, 1, stream_);
    muon->step(0.005f, 1, stream_);
    sgd->step(0.01f, 1, stream_);
  }
  for (std::size_t i = 0; i < twins.size(); ++i) {
    EXPECT_TRUE(testing::same_bits(master_of(parameters_[i]), master_of(twins[i])))
        << twins[i].name();
  }
  EXPECT_EQ(grouped->steps_taken(), 3);
  grouped->set_steps_taken(7);
  EXPECT_EQ(grouped->steps_taken(), 7);
}

TEST_F(OptimizerGroups, EveryGroupKeyTakesEffect) {
  const auto trained = [&](const OptimizerGroupConfig& group) {
    ParameterSet parameters(stream_);
    OptimizerConfig config{.name = "adamw", .learning_rate = 0.01};
    config.groups = {group};
    const auto optimizer = make_optimizer(config, parameters.pointers(), stream_);
    for (std::uint64_t t = 1; t <= 3; ++t) {
      parameters.set_gradients(t);
      optimizer->step(0.01f, 1, stream_);
    }
    return testing::clone(master_of(parameters[5]), stream_);
  };
  const Tensor plain = trained({.match = "embedding"});
  for (const OptimizerGroupConfig& group : {
           OptimizerGroupConfig{.match = "bias", .name = "sgd"},
           OptimizerGroupConfig{.match = "large", .name = "sgd"},
           OptimizerGroupConfig{.match = "large", .learning_rate = 0.02},
           OptimizerGroupConfig{.match = "large", .betas = std::vector<double>{0.8, 0.9}},
           OptimizerGroupConfig{.match = "large", .epsilon = 0.1},
           OptimizerGroupConfig{.match = "large", .weight_decay = 0.5},
           OptimizerGroupConfig{.match = "large", .state_bits = 8},
       }) {
    EXPECT_EQ(testing::same_bits(trained(group), plain), group.match == "bias");
  }
  EXPECT_FALSE(testing::same_bits(trained({.match = "large", .name = "sgd", .momentum = 0.5}),
                                  trained({.match = "large", .name = "sgd"})));
}

TEST_F(OptimizerGroups, MuonUpdatesOtherWeightsLikeAdamW) {
  ParameterSet twins(stream_);
  const auto muon = make_optimizer({.name = "muon"}, parameters_.pointers(), stream_);
  const auto adamw = make_optimizer({.name = "adamw"}, twins.pointers(), stream_);
  for (std::uint64_t t = 1; t <= 3; ++t) {
    parameters_.set_gradients(t);
    twins.set_gradients(t);
    muon->step(0.01f, 1, stream_);
    adamw->step(0.01f, 1, stream_);
  }
  for (std::size_t i = 0; i < twins.size(); ++i) {
    EXPECT_EQ(testing::same_bits(master_of(parameters_[i]), master_of(twins[i])),
              !is_matrix(twins[i].role()))
        << twins[i].name();
  }
  Texts names;
  muon->visit_state([&](const StateLabel& label, Tensor&) { names.push_back(label.name); });
  EXPECT_EQ(names, (Texts{"wide.m", "tall.m", "square.m", "embedding.m", "embedding.v", "bias.m",
                          "bias.v", "large.m", "large.v"}));
}

}  // namespace
}  // namespace hybrid_trainer
