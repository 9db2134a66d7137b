#include <gtest/gtest.h>

#include <cmath>

#include "tests/phases/quadratic_bowl.h"

namespace hybrid_trainer {
namespace {

TEST(Predict, MovesWeightsBySummedDirections) {
  const PhaseMachine::Setup setup = eager_setup();
  BowlRun run({}, setup, 0);
  run.run_until(Phase::kPredict);
  const auto start = run.bowl.flat();
  const auto moments = run.bowl.moments();
  const double decay = setup.phases.skip_backward.decay;
  double length = 0, step = 1;
  for (int k = 0; k < 4; ++k, step *= decay) {
    run.step();
    length += step;
    const auto weights = run.bowl.flat();
    for (std::size_t i = 0; i < weights.size(); ++i) {
      const double direction = -0.02 * 0.9 * moments[i];
      EXPECT_NE(weights[i], start[i]);
      EXPECT_NEAR(weights[i], start[i] + length * direction, 1e-6);
    }
  }
  EXPECT_EQ(run.bowl.snapshot(), start);
  EXPECT_EQ(run.bowl.moments(), moments) << "predictions must not change moments";
}

TEST(Predict, RunsForwardOnly) {
  BowlRun run({}, eager_setup(), 0);
  run.run_until(Phase::kPredict);
  const auto measured = run.bowl.measurements;
  run.run_until(Phase::kCorrect);
  EXPECT_EQ(run.bowl.measurements, measured);
  EXPECT_EQ(run.bowl.forwards, 4);
}

TEST(Predict, PredictsLossOfSmoothBowl) {
  QuadraticBowl::Options slow;
  slow.learning_rate = 0.002;
  PhaseMachine::Setup setup = eager_setup();
  setup.divergence.window = 4;
  BowlRun run(slow, setup, 0);
  run.run_until(Phase::kPredict);
  const PhaseOutcome first = run.step(), second = run.step();
  ASSERT_TRUE(first.predicted_loss && second.predicted_loss);
  const double change = second.loss - first.loss;
  EXPECT_LT(change, 0);
  EXPECT_NEAR(*second.predicted_loss - first.loss, change, 0.3 * std::abs(change));
}

TEST(Predict, ForwardLossOffsetDoesNotEndPredict) {
  for (const std::int64_t micro_corrections : {0, 2}) {
    for (const double offset : {-50.0, 50.0}) {  // as with dropout off or a different precision
      PhaseMachine::Setup setup = eager_setup();
      setup.divergence.window = 4;
      setup.phases.skip_backward.correction_interval = micro_corrections;
      QuadraticBowl::Options options;
      options.learning_rate = 0.002;
      options.forward_offset = offset;
      BowlRun run(options, setup, 0);
      run.run_until(Phase::kPredict);
      std::string events;
      while (run.machine.phase() == Phase::kPredict) events += run.step().event;
      EXPECT_EQ(run.machine.statistics().of(Phase::kPredict).steps, 4) << offset << events;
      const PhaseOutcome decided = run.step();
      EXPECT_NEAR(*decided.predicted_loss, decided.loss, 5)
          << "compares losses of gradients, not of forward passes";
    }
  }
}

TEST(Predict, EndsEarlyWhenLossLeavesBand) {
  PhaseMachine::Setup setup = eager_setup();
  setup.divergence.window = 8;
  QuadraticBowl::Options uphill;
  uphill.direction_scale = -300;
  BowlRun run(uphill, setup, 0.1);
  run.run_until(Phase::kPredict);
  const PhaseOutcome last = run.run_until(Phase::kCorrect);
  EXPECT_NE(last.event.find("prediction ends early: loss"), std::string::npos) << last.event;
  EXPECT_LT(run.machine.statistics().of(Phase::kPredict).steps, 4);
  EXPECT_EQ(run.step().decision, Decision::kReverted);
}

TEST(Predict, BeginsRestoreAtLookahead) {
  for (const std::int64_t lookahead : {0, 1, 3, 9}) {
    PhaseMachine::Setup setup = eager_setup();
    setup.restore_lookahead = lookahead;
    BowlRun run({}, setup, 0);
    run.run_until(Phase::kPredict);
    std::int64_t begun_at = 0;
    for (std::int64_t step = 1; run.machine.phase() == Phase::kPredict; ++step) {
      run.step();
      if (begun_at == 0 && run.bowl.log.back() == "begin_restore") begun_at = step;
    }
    EXPECT_EQ(begun_at, lookahead == 0 ? 0 : std::max<std::int64_t>(1, 4 - lookahead + 1));
  }
}

PhaseMachine::Setup with_micro_corrections(double decay) {
  PhaseMachine::Setup setup = eager_setup();
  setup.phases.max_predict_steps = setup.phases.skip_backward.trial_steps = 12;
  setup.phases.skip_backward.correction_interval = 3;
  setup.phases.skip_backward.decay = decay;
  return setup;
}

TEST(Predict, MicroCorrectsEveryInterval) {
  QuadraticBowl::Options slow;
  slow.learning_rate = 0.002;
  BowlRun run(slow, with_micro_corrections(0.9), 0);
  run.run_until(Phase::kPredict);
  for (int k = 0; k < 12; ++k) {
    const PhaseOutcome outcome = run.step();
    EXPECT_EQ(outcome.gradient_norm.has_value(), k > 0 && k % 3 == 0) << "step " << k;
    EXPECT_EQ(outcome.phase, Phase::kPredict);
  }
  EXPECT_EQ(run.machine.statistics().micro_corrections, 3);
}

TEST(Predict, StopsWhenSlopeTurns) {
  QuadraticBowl::Options far;
  far.direction_scale = 20;
  BowlRun run(far, with_micro_corrections(1), 0);
  run.run_until(Phase::kPredict);
  const PhaseOutcome last = run.run_until(Phase::kCorrect);
  EXPECT_NE(last.event.find("the loss rises"), std::string::npos) << last.event;
  EXPECT_EQ(run.machine.statistics().of(Phase::kPredict).steps, 4);
}

TEST(Predict, SecantLimitsOvershoot) {
  QuadraticBowl::Options far;
  far.direction_scale = 8;
  BowlRun micro(far, with_micro_corrections(1), 0);
  PhaseMachine::Setup blind_setup = with_micro_corrections(1);
  blind_setup.phases.skip_backward.correction_interval = 0;
  BowlRun blind(far, blind_setup, 0);
  for (BowlRun* run : {&micro, &blind}) {
    run->run_until(Phase::kPredict);
    run->run_until(Phase::kCorrect);
  }
  const Batch clean = micro.bowl.batch(0, 0);
  EXPECT_LT(micro.bowl.loss(clean), blind.bowl.loss(clean));
}

TEST(Predict, ZeroPredictorChangesNothing) {
  PhaseMachine::Setup setup = eager_setup();
  setup.phases.skip_backward.predictor = "zero";
  setup.phases.skip_backward.confidence_threshold = 0.95;
  BowlRun run({}, setup, 0.1);
  for (int cycle = 0; cycle < 3; ++cycle) {
    run.run_until(Phase::kPredict);
    const auto start = run.bowl.flat();
    EXPECT_EQ(run.step().confidence, 1.0);
    run.run_until(Phase::kCorrect);
    EXPECT_EQ(run.bowl.flat(), start);
    const PhaseOutcome decided = run.step();
    EXPECT_EQ(decided.decision, Decision::kAccepted);
  }
  EXPECT_EQ(run.machine.statistics().predicted_gain, 0) << "the prediction does not move";
}

double planning_cost(const PhaseOutcome& outcome) { return outcome.planning_cost.value_or(0); }

TEST(PredictPhase, ChargesPlanningOfModelBasedHorizon) {
  PhaseMachine::Setup setup = eager_setup();
  BowlRun measured({}, setup, 0.1);
  for (const PhaseOutcome& outcome : measured.run(60)) EXPECT_FALSE(outcome.planning_cost);
  EXPECT_EQ(measured.machine.statistics().planning_cost, 0);
  setup.phases.skip_backward.horizon = "model_based";
  setup.phases.skip_backward.direction_cost = 0;
  BowlRun model_based({}, setup, 0.1);
  double sum = 0;
  for (int i = 0; i < 200; ++i) {
    const PhaseOutcome outcome = model_based.step();
    sum += planning_cost(outcome);
    if (outcome.phase == Phase::kFull) {
      EXPECT_EQ(outcome.cost, 1 + planning_cost(outcome));
    }
  }
  EXPECT_GE(model_based.machine.statistics().predictions.made, 5);
  EXPECT_NEAR(model_based.machine.statistics().planning_cost, sum, 1e-12);
}

TEST(PredictPhase, PlanningCostIsRelativeToFullStep) {
  PhaseMachine::Setup setup = eager_setup();
  setup.phases.skip_backward.horizon = "model_based";
  setup.phases.warmup_steps = 20;
  BowlRun small({}, setup, 0.1), large({}, setup, 0.1);
  large.bowl.flops = 4 * small.bowl.flops;
  small.run(15);
  large.run(15);
  const double cost = planning_cost(small.step());
  EXPECT_GT(cost, 0) << "the planner learns from the 16th update on";
  EXPECT_EQ(planning_cost(large.step()), cost / 4);
}

TEST(PredictPhase, PlanningStaysWithinQuarterOfTrialShare) {
  PhaseMachine::Setup setup = eager_setup();
  setup.phases.skip_backward.horizon = "model_based";
  setup.phases.skip_backward.trial_share = 0.1;
  QuadraticBowl::Options uphill;
  uphill.direction_scale = -1;
  BowlRun run(uphill, setup, 0.1);
  run.bowl.flops = 7e7;  // learning from every update would cost 0.3 of a step
  run.run(300);
  const PhaseStatistics& statistics = run.machine.statistics();
  EXPECT_GT(statistics.planning_cost, 0.02 * 300);
  EXPECT_LE(statistics.planning_cost, 0.035 * 300) << "plus the planning before each probe";
}

}  // namespace
}  // namespace hybrid_trainer
