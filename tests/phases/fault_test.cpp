#include <gtest/gtest.h>

#include <cmath>

#include "hybrid_trainer/core/error.h"
#include "phases/quadratic_bowl.h"

namespace hybrid_trainer {
namespace {

bool all_finite(const std::vector<float>& values) {
  for (const float value : values) {
    if (!std::isfinite(value)) return false;
  }
  return true;
}

TEST(NonFiniteBatch, NeverReachesTheWeightsInAnyStep) {
  PhaseMachine::Setup setup = eager_setup();
  setup.phases.correction_interval = 2;
  setup.phases.correct_steps = 2;
  for (int broken_at = 0; broken_at < 30; ++broken_at) {
    BowlRun run({}, setup, 0);
    for (int i = 0; i < 60; ++i) {
      const bool broken = i == broken_at;
      const Phase phase = run.machine.phase();
      const auto start = phase == Phase::kPredict && !run.bowl.snapshot().empty()
                             ? run.bowl.snapshot()
                             : run.bowl.flat();
      const auto moments = run.bowl.moments();
      const PhaseOutcome outcome =
          run.machine.step(broken ? run.bowl.broken_batch() : run.bowl.batch(i, 0));
      ASSERT_TRUE(all_finite(run.bowl.flat())) << "broken at " << broken_at << ", step " << i;
      ASSERT_TRUE(all_finite(run.bowl.moments()));
      if (!broken) continue;
      EXPECT_NE(outcome.event.find("not finite"), std::string::npos) << outcome.event;
      if (phase == Phase::kCorrect) continue;  // trains on the batches of Predict
      EXPECT_EQ(outcome.updates, 0);
      EXPECT_EQ(run.bowl.moments(), moments);
      EXPECT_EQ(run.bowl.flat(), start) << "broken at " << broken_at;
    }
  }
}

TEST(NonFiniteBatch, RollsPredictBackToTheSnapshotAndGoesOnInFull) {
  BowlRun run({}, eager_setup(), 0);
  run.run_until(Phase::kPredict);
  run.step();
  run.step();
  const auto snapshot = run.bowl.snapshot();
  const PhaseOutcome outcome = run.machine.step(run.bowl.broken_batch());
  EXPECT_EQ(outcome.decision, Decision::kReverted);
  EXPECT_EQ(run.bowl.flat(), snapshot);
  EXPECT_EQ(run.machine.phase(), Phase::kFull);
  EXPECT_NE(outcome.event.find("rolled back 3 predicted steps"), std::string::npos);
  EXPECT_EQ(run.machine.statistics().predictions.reverted, 1);
}

TEST(NonFiniteBatch, EndsTheRunAfterTooManyInARow) {
  PhaseMachine::Setup setup = eager_setup();
  setup.divergence.max_skipped_updates = 2;
  BowlRun run({}, setup, 0);
  run.run(4);
  const auto good = run.bowl.flat();
  EXPECT_NE(run.machine.step(run.bowl.broken_batch()).event.find("1 of 2 in a row"),
            std::string::npos);
  run.machine.step(run.bowl.broken_batch());
  EXPECT_THROW(run.machine.step(run.bowl.broken_batch()), Diverged);
  EXPECT_EQ(run.bowl.flat(), good);
}

TEST(NonFiniteBatch, CountsSkipsInARowOnly) {
  PhaseMachine::Setup setup = eager_setup();
  setup.phases.max_predict_steps = 0;
  setup.divergence.max_skipped_updates = 1;
  BowlRun run({}, setup, 0);
  for (int i = 0; i < 5; ++i) {
    run.machine.step(run.bowl.broken_batch());
    run.step();
  }
  EXPECT_EQ(run.machine.statistics().skipped_updates, 5);
}

}  // namespace
}  // namespace hybrid_trainer
