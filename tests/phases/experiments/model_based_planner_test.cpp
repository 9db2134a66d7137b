#include "phases/experiments/model_based_planner.h"

#include <gtest/gtest.h>

#include <cmath>

#include "hybrid_trainer/core/random.h"

namespace hybrid_trainer {
namespace {

PhaseConfig model_based() {
  PhaseConfig config;
  config.skip_backward.horizon = "model_based";
  config.max_predict_steps = 16;
  return config;
}

/// A run whose loss falls by about 2 % per update, with noise, and by `worth` of that for each
/// position of a predicted step. Every eighth update is followed by a prediction.
class PlannedRun {
 public:
  PlannedRun(PhaseConfig config, double worth) : planner_(config), worth_(worth) {}
  void update() {
    const double noise = 0.01 * (to_unit_float(random_word({.seed = 5}, updates_)) - 0.5);
    planner_.observe_update(loss_ + noise, loss_, true);
    loss_ *= 0.98;
    ++updates_;
  }
  ModelBasedPlanner::Plan extrapolation() {
    const ModelBasedPlanner::Plan plan = planner_.plan(16);
    Extrapolation extrapolation;
    const double position = static_cast<double>(plan.steps) * plan.step_length;
    extrapolation.paired_drop = loss_ * 0.02 * worth_ * position;
    extrapolation.decision = worth_ > 0 ? Decision::kAccepted : Decision::kReverted;
    loss_ -= worth_ > 0 ? extrapolation.paired_drop : 0;
    extrapolation.final_position = worth_ > 0 ? position : 0;
    planner_.observe_result(extrapolation);
    return plan;
  }
  ModelBasedPlanner::Plan run(int updates) {
    ModelBasedPlanner::Plan last;
    for (int i = 1; i <= updates; ++i) {
      update();
      if (i % 8 == 0) last = extrapolation();
    }
    return last;
  }
  ModelBasedPlanner& planner() { return planner_; }

 private:
  ModelBasedPlanner planner_;
  double worth_, loss_ = 4;
  std::uint64_t updates_ = 0;
};

TEST(ModelBasedPlanner, ConfidenceFollowsJumpSuccess) {
  const ModelBasedPlanner::Plan good = PlannedRun(model_based(), 1).run(240),
                                bad = PlannedRun(model_based(), -1).run(240);
  EXPECT_GT(good.confidence, 0.7);
  EXPECT_LT(bad.confidence, 0.3);
}

TEST(ModelBasedPlanner, ShortensStepsWhenDropsFallShort) {
  PhaseConfig without = model_based();
  without.skip_backward.residual_store = 0;
  const double free = PlannedRun(without, -1).run(160).step_length,
               held = PlannedRun(model_based(), -1).run(160).step_length;
  EXPECT_LT(held, free);
}

TEST(ModelBasedPlanner, TracksFadingMeanAndDeviation) {
  ModelBasedPlanner planner(model_based());
  for (int i = 0; i < 400; ++i)
    planner.observe_update(i % 2 == 0 ? 2.0 : 4.0, i % 2 == 0 ? 1 : 3, false);
  State state;
  planner.save(state);
  EXPECT_NEAR(state.real("phases.planner.mean"), 3, 0.05);
  EXPECT_NEAR(state.real("phases.planner.square"), 1, 0.05);
  EXPECT_NEAR(state.real("phases.planner.norm"), 0.5 * std::log(3.0), 0.05);
  for (int i = 0; i < 400; ++i) planner.observe_update(7, 1, false);
  planner.save(state);
  EXPECT_NEAR(state.real("phases.planner.mean"), 7, 0.01) << "older values fade";
}

TEST(ModelBasedPlanner, RestoresSavedState) {
  PlannedRun whole(model_based(), 1), stopped(model_based(), 1);
  whole.run(64);
  stopped.run(64);
  State state;
  stopped.planner().save(state);
  stopped.planner() = ModelBasedPlanner(model_based());
  stopped.planner().load(state);
  const ModelBasedPlanner::Plan a = whole.run(32), b = stopped.run(32);
  EXPECT_EQ(a.steps, b.steps);
  EXPECT_EQ(a.step_length, b.step_length);
  EXPECT_EQ(a.confidence, b.confidence);
  EXPECT_EQ(a.drop, b.drop);
}

/// The price of an operation is model_based_cost times that of an operation in a Full step.
TEST(ModelBasedPlanner, ChargesComputeInFullSteps) {
  PhaseConfig config = model_based();
  config.skip_backward.model_based_cost = 8;
  ModelBasedPlanner planner(config);
  const double flops = planner.plan_flops(4);
  EXPECT_EQ(planner.estimated_cost(4, 1000), 8 * flops / 1000);
  EXPECT_EQ(planner.take_cost(1000), 0.0);
  const ExtrapolationPlan plan = planner.plan(ExtrapolationPlan{4, 1, 0.5});
  EXPECT_LE(plan.steps, 4);
  EXPECT_GT(planner.take_cost(1000), 0.0);
  EXPECT_EQ(planner.take_cost(1000), 0.0);
}

TEST(ModelBasedPlanner, LearnsOnlyWithinCostBudget) {
  const auto learns = [](const RunCosts& costs) {
    ModelBasedPlanner planner(model_based());
    for (int i = 0; i < 15; ++i) planner.observe_update(1, 1, true);
    planner.observe_update(GradientMeasurement{1, 1}, costs);
    return planner.take_flops() > 0;
  };
  RunCosts costs{.full_flops = 1e12, .steps = 1000};
  EXPECT_TRUE(learns(costs));
  costs.extra = 2 * SkipBackwardConfig{}.trial_share * costs.steps;
  EXPECT_FALSE(learns(costs)) << "probes have used up the budget for unprofitable costs";
  costs.pays = true;
  EXPECT_TRUE(learns(costs));
  costs.advice = SkipBackwardConfig{}.trial_share / 4 * costs.steps;
  EXPECT_FALSE(learns(costs)) << "planning may use at most a quarter of trial_share";
}

TEST(ModelBasedPlanner, CountsFlops) {
  ModelBasedPlanner planner(model_based());
  for (int i = 0; i < 15; ++i) planner.observe_update(1, 1, true);
  EXPECT_EQ(planner.take_flops(), 0) << "too few updates to learn from";
  planner.observe_update(1, 1, false);
  EXPECT_EQ(planner.take_flops(), 0);
  planner.observe_update(1, 1, true);
  EXPECT_EQ(planner.take_flops(), planner.update_flops());
  EXPECT_EQ(planner.take_flops(), 0);
  const double step = planner.update_flops() / (3 * 16);
  EXPECT_GT(step, 0);
  planner.plan(1);
  EXPECT_EQ(planner.take_flops(), (16 + 1 + 3) * step)
      << "16 updates, no prediction, 3 lengths of one step";
  EXPECT_EQ(planner.plan_flops(1), (16 + 1 + 3) * step);
  planner.plan(4);
  EXPECT_EQ(planner.take_flops(), (16 + 1 + 9) * step) << "3 lengths each of 1, 2 and 4 steps";
  EXPECT_EQ(planner.plan_flops(7), planner.plan_flops(4));
}

TEST(ModelBasedPlanner, LearnsOnlyWhenAllowed) {
  const auto learnt = [](bool may_train) {
    ModelBasedPlanner planner(model_based());
    for (int i = 0; i < 40; ++i) planner.observe_update(2.0 - 0.01 * i, 1, may_train);
    State state;
    planner.save(state);
    return state.reals_of("phases.planner.model.0");
  };
  EXPECT_EQ(learnt(false)[0], 0) << "number of Adam steps";
  EXPECT_EQ(learnt(true)[0], 25);
}

TEST(ModelBasedPlanner, IgnoresNonFiniteUpdates) {
  PlannedRun run(model_based(), 1);
  run.run(40);
  run.planner().observe_update(NAN, 1, true);
  run.planner().observe_update(1, INFINITY, true);
  const ModelBasedPlanner::Plan plan = run.run(8);
  EXPECT_TRUE(std::isfinite(plan.drop));
  EXPECT_TRUE(std::isfinite(plan.confidence));
}

/// Running means of the loss and of the logarithm of the norm weight each update by 0.02.
TEST(ModelBasedPlanner, RunningMeansWeightEachUpdateByTwoPercent) {
  PhaseConfig config;
  config.skip_backward.horizon = "model_based";
  ModelBasedPlanner planner(config);
  const auto real = [&](const char* name) {
    State state;
    planner.save(state);
    return state.real(std::string("phases.planner.") + name);
  };
  planner.observe_update(3, 1, false);
  EXPECT_EQ(real("mean"), 3);
  planner.observe_update(2, std::exp(1.0), false);
  EXPECT_NEAR(real("mean"), 3 - 0.02, 1e-12);
  EXPECT_NEAR(real("square"), 0.02, 1e-12);
  EXPECT_NEAR(real("norm"), 0.02, 1e-12);
  for (int i = 0; i < 600; ++i) planner.observe_update(2, std::exp(1.0), false);
  EXPECT_NEAR(real("mean"), 2, 1e-4);
  EXPECT_NEAR(real("norm"), 1, 1e-4);
}

}  // namespace
}  // namespace hybrid_trainer
