#include "phases/experiments/prediction_bandit.h"

#include <gtest/gtest.h>

#include <map>

#include "tests/phases/quadratic_bowl.h"

namespace hybrid_trainer {
namespace {

PhaseConfig with_arms() {
  PhaseConfig config;
  config.skip_backward.variants = {{"momentum", 2}, {"momentum", 8}, {"linear", 4}};
  return config;
}

Extrapolation jump_worth(double drop, double cost, double next_step_length = 1) {
  Extrapolation extrapolation;
  extrapolation.paired_drop = drop;
  extrapolation.cost = cost;
  extrapolation.next_step_length = next_step_length;
  return extrapolation;
}

TEST(PredictionBandit, TriesEachArmFirstInOrder) {
  PredictionBandit bandit(with_arms());
  for (const std::int64_t steps : {2, 8, 4}) {
    EXPECT_EQ(bandit.choice()->arm.steps, steps);
    EXPECT_NE(bandit.explanation().find("not tried yet"), std::string::npos);
    bandit.observe_result(jump_worth(0.1, 2));
  }
}

TEST(PredictionBandit, PrefersArmWithBestGainPerCost) {
  PredictionBandit bandit(with_arms());
  std::map<std::int64_t, int> taken;
  for (int i = 0; i < 200; ++i) {
    const std::int64_t steps = bandit.choice()->arm.steps;
    ++taken[steps];
    // The longest gains most in total but least for its cost.
    bandit.observe_result(steps == 8 ? jump_worth(0.06, 6)
                                     : jump_worth(steps == 4 ? 0.05 : 0.02, 1));
  }
  EXPECT_GT(taken[4], taken[2]);
  EXPECT_GT(taken[2], taken[8]);
  EXPECT_GT(taken[8], 0) << "arms are retried after a long time";
}

TEST(PredictionBandit, AdaptsToImprovedArm) {
  PredictionBandit bandit(with_arms());
  const auto play = [&](std::int64_t best) {
    int times = 0;
    for (int i = 0; i < 60; ++i) {
      const bool hit = bandit.choice()->arm.steps == best;
      times += hit && i >= 30;
      bandit.observe_result(jump_worth(hit ? 0.1 : 0, 1));
    }
    return times;
  };
  EXPECT_GT(play(8), 10);
  EXPECT_GT(play(2), 10);
}

TEST(PredictionBandit, KeepsStepLengthPerArm) {
  PredictionBandit bandit(with_arms());
  bandit.observe_result(jump_worth(0.1, 1, 0.25));
  EXPECT_EQ(bandit.choice()->step_length, 1) << "step length of an untried arm";
  bandit.observe_result(jump_worth(0, 1, 0.5));
  bandit.observe_result(jump_worth(0, 1, 0.75));
  EXPECT_EQ(bandit.choice()->arm.steps, 2);
  EXPECT_EQ(bandit.choice()->step_length, 0.25);
  EXPECT_NE(bandit.explanation().find("momentum for 2 steps, its loss falls by 0.1"),
            std::string::npos)
      << bandit.explanation();
}

TEST(PredictionBandit, ResumesFromSavedState) {
  PredictionBandit one(with_arms()), other(with_arms());
  for (const double drop : {0.1, 0.3, -0.1, 0.2}) one.observe_result(jump_worth(drop, 2, drop));
  State state;
  one.save(state);
  other.load(state);
  EXPECT_EQ(other.explanation(), one.explanation());
  for (int i = 0; i < 20; ++i) {
    one.observe_result(jump_worth(0.01 * i, 1));
    other.observe_result(jump_worth(0.01 * i, 1));
    ASSERT_EQ(other.explanation(), one.explanation());
  }
}

TEST(PredictionBandit, ChoosesAndReportsPredictorAndHorizon) {
  PhaseMachine::Setup setup = eager_setup();
  setup.phases.max_predict_steps = 6;
  setup.phases.skip_backward.variants = {{"momentum", 2}, {"linear", 6}, {"merged", 3}};
  BowlRun run({}, setup, 0.05);
  std::map<std::string, std::int64_t> planned;
  std::string events;
  for (const PhaseOutcome& outcome : run.run(200)) {
    EXPECT_EQ(outcome.predictor.empty(),
              outcome.phase != Phase::kPredict && outcome.decision == Decision::kNone);
    if (outcome.phase == Phase::kPredict) planned[outcome.predictor] = outcome.planned_steps;
    events += outcome.event + "\n";
  }
  EXPECT_EQ(planned,
            (std::map<std::string, std::int64_t>{{"momentum", 2}, {"linear", 6}, {"merged", 3}}));
  EXPECT_NE(events.find("next: merged for 3 steps, not tried yet"), std::string::npos) << events;
  EXPECT_NE(events.find("its loss falls by"), std::string::npos) << events;
}

}  // namespace
}  // namespace hybrid_trainer
