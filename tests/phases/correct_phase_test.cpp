#include <gtest/gtest.h>

#include "phases/quadratic_bowl.h"

namespace hybrid_trainer {
namespace {

/// A run that stands before the first Correct, with directions of another length.
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
  other.load({start, run.bowl.moments(), {}});
  other.enter_phase(Phase::kFull);
  other.wait_for_gradient(other.batch(run.steps, run.noise));
  other.apply_gradient();
  return other.flat();
}

TEST(Correct, AcceptsAJumpThatLowersTheLossAndUpdatesThere) {
  BowlRun run = before_correct(1);
  const auto predicted = run.bowl.flat();
  const auto expected = updated(run, predicted);
  const PhaseOutcome outcome = run.step();
  EXPECT_EQ(outcome.decision, Decision::kAccepted);
  EXPECT_EQ(outcome.kept_fraction, 1);
  EXPECT_TRUE(outcome.updated);
  EXPECT_NE(outcome.event.find("accepted: loss"), std::string::npos) << outcome.event;
  const auto weights = run.bowl.flat();
  for (std::size_t i = 0; i < weights.size(); ++i) EXPECT_NEAR(weights[i], expected[i], 1e-6);
  EXPECT_EQ(run.machine.statistics().predictions.accepted, 1);
  EXPECT_GT(run.machine.statistics().predicted_gain, 0);
}

TEST(Correct, RevertsBitForBitAndUpdatesAtTheSnapshot) {
  BowlRun run = before_correct(-1);
  const auto snapshot = run.bowl.snapshot();
  const auto expected = updated(run, snapshot);
  const PhaseOutcome outcome = run.step();
  EXPECT_EQ(outcome.decision, Decision::kReverted);
  EXPECT_EQ(outcome.kept_fraction, 0);
  EXPECT_EQ(run.bowl.flat(), expected);
  EXPECT_EQ(run.machine.statistics().predictions.reverted, 1);
  EXPECT_NE(outcome.event.find("reverted: loss"), std::string::npos) << outcome.event;
}

TEST(Correct, ShrinksAnOvershootToTheBottomOfTheLine) {
  BowlRun run = before_correct(60);
  const auto snapshot = run.bowl.snapshot();
  const double before = run.bowl.wait_for_loss(run.bowl.batch(0, 0));
  QuadraticBowl start(run.bowl.options());
  start.load({snapshot, run.bowl.moments(), {}});
  ASSERT_GT(before, start.wait_for_loss(start.batch(0, 0))) << "the jump must overshoot";
  const PhaseOutcome outcome = run.step();
  EXPECT_EQ(outcome.decision, Decision::kShrunk) << outcome.event;
  EXPECT_GT(outcome.kept_fraction, 0);
  EXPECT_LT(outcome.kept_fraction, 0.5);
  EXPECT_LT(outcome.loss, start.wait_for_loss(start.batch(0, 0)));
  EXPECT_EQ(run.machine.statistics().predictions.shrunk, 1);
}

TEST(Correct, RevertsAnOvershootWhereItMayNotShrink) {
  PhaseMachine::Setup setup = eager_setup();
  setup.phases.max_shrinks = 0;
  BowlRun run = before_correct(60, setup);
  EXPECT_EQ(run.step().decision, Decision::kReverted);
}

TEST(Correct, RevertsWhereTheGradientExplodes) {
  PhaseMachine::Setup setup = eager_setup();
  setup.divergence.window = 8;
  setup.divergence.loss_sigmas = 1e9;
  setup.divergence.gradient_factor = 3;
  BowlRun run = before_correct(300, setup);
  const PhaseOutcome outcome = run.step();
  EXPECT_EQ(outcome.decision, Decision::kReverted);
  EXPECT_NE(outcome.event.find("gradient norm"), std::string::npos) << outcome.event;
}

TEST(Correct, DropsTheSnapshotAndTheDirections) {
  BowlRun run = before_correct(1);
  EXPECT_FALSE(run.bowl.snapshot().empty());
  run.step();
  EXPECT_TRUE(run.bowl.snapshot().empty());
  const MemoryUse use = run.bowl.stream().pool()->use();
  EXPECT_EQ(use.live[static_cast<std::size_t>(MemoryKind::kPredictor)], 0u);
}

TEST(Correct, ComparesOnAsManyProbesAsAsked) {
  for (const std::int64_t probes : {1, 3}) {
    PhaseMachine::Setup setup = eager_setup();
    setup.phases.probe_batches = probes;
    BowlRun run = before_correct(1, setup);
    const auto before = run.bowl.forwards;
    run.step();
    EXPECT_EQ(run.bowl.forwards - before, 2 * probes);
  }
}

}  // namespace
}  // namespace hybrid_trainer
