#include <gtest/gtest.h>

#include "tests/phases/quadratic_bowl.h"

namespace hybrid_trainer {
namespace {

/// A run just before the first Correct, with scaled directions.
BowlRun before_correct(double direction_scale, PhaseMachine::Setup setup = eager_setup()) {
  QuadraticBowl::Options options;
  options.direction_scale = direction_scale;
  BowlRun run(options, setup, 0);
  run.run_until(Phase::kCorrect);
  return run;
}

/// The weights after one update at `start` with the moments of the bowl.
std::vector<float> updated(BowlRun& run, const std::vector<float>& start) {
  QuadraticBowl other(run.bowl.options());
  other.restore({start, run.bowl.moments(), {}});
  other.enter_phase(Phase::kFull);
  other.wait_for_gradient(other.batch(run.steps, run.noise));
  other.apply_gradient();
  return other.flat();
}

TEST(Correct, ReportsJumpLengthToFollowers) {
  QuadraticBowl::Options slow;
  slow.learning_rate = 0.002;
  BowlRun run(slow, eager_setup(), 0);
  run.run_until(Phase::kCorrect);
  EXPECT_EQ(run.bowl.followed, 0);
  EXPECT_EQ(run.step().decision, Decision::kAccepted);
  EXPECT_NEAR(run.bowl.followed, 1 + 0.9 + 0.81 + 0.729, 1e-9);
  QuadraticBowl::Options uphill;
  uphill.direction_scale = -300;
  BowlRun reverted(uphill, eager_setup(), 0.1);
  reverted.run_until(Phase::kCorrect);
  EXPECT_EQ(reverted.step().decision, Decision::kReverted);
  EXPECT_EQ(reverted.bowl.followed, 0);
}

/// Even a rise below a thousandth is not noise, since both losses use the same batches.
TEST(Correct, RejectsJumpThatRaisesLoss) {
  for (const double direction_scale : {-1e-3, -1e-2})
    EXPECT_EQ(before_correct(direction_scale).step().decision, Decision::kReverted);
}

TEST(Correct, AcceptsJumpThatLowersLoss) {
  BowlRun run = before_correct(1);
  const auto predicted = run.bowl.flat();
  const auto expected = updated(run, predicted);
  const PhaseOutcome outcome = run.step();
  EXPECT_EQ(outcome.decision, Decision::kAccepted);
  EXPECT_EQ(outcome.kept_fraction, 1);
  EXPECT_EQ(outcome.updates, 1);
  EXPECT_NE(outcome.event.find("accepted: loss"), std::string::npos) << outcome.event;
  const auto weights = run.bowl.flat();
  for (std::size_t i = 0; i < weights.size(); ++i) EXPECT_NEAR(weights[i], expected[i], 1e-6);
  EXPECT_EQ(run.machine.statistics().predictions.accepted, 1);
  EXPECT_GT(run.machine.statistics().predicted_gain, 0);
}

TEST(Correct, RevertedJumpTrainsOnPredictBatches) {
  PhaseMachine::Setup setup = eager_setup();
  setup.phases.max_predict_steps = 4;
  QuadraticBowl::Options uphill;
  uphill.direction_scale = -1;
  BowlRun run(uphill, setup, 0.01);
  QuadraticBowl plain(uphill);
  plain.enter_phase(Phase::kFull);
  std::int64_t next = 0;
  for (int i = 0; i < 60; ++i) {
    const PhaseOutcome outcome = run.step();
    for (std::int64_t update = 0; update < outcome.updates; ++update, ++next) {
      plain.wait_for_gradient(plain.batch(next, 0.01));
      plain.apply_gradient();
    }
    if (outcome.phase == Phase::kPredict) continue;
    EXPECT_EQ(next, i + 1) << "no batch or update may be lost";
    EXPECT_EQ(run.bowl.flat(), plain.flat());
    EXPECT_EQ(run.bowl.moments(), plain.moments());
    if (outcome.phase != Phase::kCorrect) continue;
    EXPECT_EQ(outcome.decision, Decision::kReverted);
    EXPECT_EQ(outcome.kept_fraction, 0);
    EXPECT_NE(outcome.event.find("reverted: loss"), std::string::npos) << outcome.event;
  }
  EXPECT_GE(run.machine.statistics().predictions.reverted, 5);
  EXPECT_EQ(run.bowl.rewinds.back(), 0) << "the position returns to the current step";
  EXPECT_GT(run.bowl.rewinds.front(), 0) << "each batch is repeated at its original step";
}

TEST(Correct, UsesFullPrecisionAfterRevert) {
  PhaseMachine::Setup setup = eager_setup();
  setup.phases.correct_steps = 3;
  BowlRun run = before_correct(-1, setup);
  EXPECT_EQ(run.step().decision, Decision::kReverted);
  const std::vector<std::string> end(run.bowl.log.end() - 2, run.bowl.log.end());
  EXPECT_EQ(end, (std::vector<std::string>{"correct", "full"}));
  State state;
  run.machine.save(state);
  BowlRun resumed({}, setup, 0);
  resumed.bowl.restore(run.bowl.saved());
  resumed.machine.load(state);
  EXPECT_EQ(resumed.bowl.log, std::vector<std::string>{"full"});
  EXPECT_EQ(resumed.step().phase, Phase::kCorrect);
  EXPECT_EQ(resumed.bowl.log, std::vector<std::string>{"full"}) << "until Correct ends";

  BowlRun kept = before_correct(1, setup);
  EXPECT_EQ(kept.step().decision, Decision::kAccepted);
  EXPECT_EQ(kept.bowl.log.back(), "correct");
}

TEST(Correct, RevertedJumpCostExcludesUpdates) {
  PhaseMachine::Setup setup = eager_setup();
  setup.phases.skip_backward.max_shrinks = 0;
  BowlRun run = before_correct(-1, setup);
  const PhaseOutcome outcome = run.step();
  ASSERT_EQ(outcome.decision, Decision::kReverted);
  EXPECT_EQ(outcome.updates, 5);
  State state;
  run.machine.save(state);
  const double aims = 0.3 * static_cast<double>(run.bowl.directions_asked);
  // Four forward passes in Predict, two probes before and two after, and a gradient elsewhere.
  EXPECT_NEAR(state.real("phases.gate.last.cost"), aims + 8 * 0.35 + 1, 1e-9);
}

TEST(Correct, ShrinksOvershootToLineMinimum) {
  BowlRun run = before_correct(60);
  const auto snapshot = run.bowl.snapshot();
  const double before = run.bowl.loss(run.bowl.batch(0, 0));
  QuadraticBowl start(run.bowl.options());
  start.restore({snapshot, run.bowl.moments(), {}});
  ASSERT_GT(before, start.loss(start.batch(0, 0))) << "the jump must overshoot";
  const PhaseOutcome outcome = run.step();
  EXPECT_EQ(outcome.decision, Decision::kShrunk) << outcome.event;
  EXPECT_GT(outcome.kept_fraction, 0);
  EXPECT_LT(outcome.kept_fraction, 0.5);
  EXPECT_LT(outcome.loss, start.loss(start.batch(0, 0)));
  EXPECT_EQ(run.machine.statistics().predictions.shrunk, 1);
}

TEST(Correct, RejectsRelativelyTinyRise) {
  PhaseMachine::Setup setup = eager_setup();
  setup.phases.skip_backward.max_shrinks = 0;
  QuadraticBowl::Options options;
  options.floor = 1e6;
  for (const double direction_scale : {-1.0, 1.0}) {
    options.direction_scale = direction_scale;
    BowlRun run(options, setup, 0);
    run.run_until(Phase::kCorrect);
    const Decision wanted = direction_scale > 0 ? Decision::kAccepted : Decision::kReverted;
    EXPECT_EQ(run.step().decision, wanted);
  }
}

TEST(Correct, RevertsOvershootWithoutShrinks) {
  PhaseMachine::Setup setup = eager_setup();
  setup.phases.skip_backward.max_shrinks = 0;
  BowlRun run = before_correct(60, setup);
  EXPECT_EQ(run.step().decision, Decision::kReverted);
}

TEST(Correct, RevertsWhenGradientExplodes) {
  PhaseMachine::Setup setup = eager_setup();
  setup.divergence.window = 8;
  setup.divergence.loss_sigmas = 1e9;
  setup.divergence.gradient_factor = 3;
  BowlRun run = before_correct(300, setup);
  const PhaseOutcome outcome = run.step();
  EXPECT_EQ(outcome.decision, Decision::kReverted);
  EXPECT_NE(outcome.event.find("gradient norm"), std::string::npos) << outcome.event;
}

TEST(Correct, FreesSnapshotAndDirections) {
  BowlRun run = before_correct(1);
  EXPECT_FALSE(run.bowl.snapshot().empty());
  run.step();
  EXPECT_TRUE(run.bowl.snapshot().empty());
  const MemoryUse use = run.bowl.stream().pool()->use();
  EXPECT_EQ(use.live[static_cast<std::size_t>(MemoryKind::kPredictor)], 0u);
}

TEST(Correct, UsesConfiguredNumberOfProbes) {
  for (const std::int64_t probes : {1, 3}) {
    PhaseMachine::Setup setup = eager_setup();
    setup.phases.skip_backward.probe_batches = probes;
    BowlRun run = before_correct(1, setup);
    const auto before = run.bowl.forwards;
    run.step();
    EXPECT_EQ(run.bowl.forwards - before, 2 * probes);
  }
}

}  // namespace
}  // namespace hybrid_trainer
