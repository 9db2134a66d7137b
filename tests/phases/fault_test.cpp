#include <gtest/gtest.h>

#include <cmath>

#include "hybrid_trainer/core/error.h"
#include "tests/phases/quadratic_bowl.h"

namespace hybrid_trainer {
namespace {

bool all_finite(const std::vector<float>& values) {
  for (const float value : values) {
    if (!std::isfinite(value)) return false;
  }
  return true;
}

TEST(NonFiniteBatch, NeverReachesWeights) {
  PhaseMachine::Setup setup = eager_setup();
  setup.phases.skip_backward.correction_interval = 2;
  setup.phases.correct_steps = 2;
  for (int broken_at = 0; broken_at < 30; ++broken_at) {
    BowlRun run({}, setup, 0);
    for (int i = 0; i < 60; ++i) {
      const bool broken = i == broken_at;
      const Phase phase = run.machine.phase();
      const auto start = run.bowl.flat();
      const auto moments = run.bowl.moments();
      const PhaseOutcome outcome =
          run.machine.step(broken ? run.bowl.broken_batch() : run.bowl.batch(i, 0));
      ASSERT_TRUE(all_finite(run.bowl.flat())) << "broken at " << broken_at << ", step " << i;
      ASSERT_TRUE(all_finite(run.bowl.moments()));
      if (!broken) continue;
      EXPECT_NE(outcome.event.find("not finite"), std::string::npos) << outcome.event;
      EXPECT_TRUE(outcome.warns);
      if (phase == Phase::kCorrect) continue;  // trains on the batches of Predict
      EXPECT_EQ(outcome.updates, 0);
      EXPECT_EQ(run.bowl.moments(), moments);
      EXPECT_EQ(run.bowl.flat(), start) << "broken at " << broken_at;
    }
  }
}

TEST(NonFiniteBatch, InPredictMatchesPlainTraining) {
  PhaseMachine::Setup plain_setup = eager_setup();
  plain_setup.phases.max_predict_steps = 0;
  for (int broken_at = 0; broken_at < 4; ++broken_at) {
    BowlRun run({}, eager_setup(), 0.1), plain({}, plain_setup, 0.1);
    run.run_until(Phase::kPredict);
    plain.run(run.steps);
    std::string events;
    for (int i = 0; run.machine.phase() == Phase::kPredict || i <= broken_at; ++i) {
      const Batch batch =
          i == broken_at ? run.bowl.broken_batch() : run.bowl.batch(run.steps, run.noise);
      events += run.machine.step(batch).event;
      plain.machine.step(batch);
      ++run.steps, ++plain.steps;
    }
    EXPECT_EQ(run.machine.phase(), Phase::kCorrect);
    const PhaseOutcome outcome = run.step();
    plain.step();
    EXPECT_EQ(outcome.decision, Decision::kReverted) << "broken at " << broken_at;
    EXPECT_NE(outcome.event.find("reverted: a loss was not finite in "), std::string::npos);
    EXPECT_EQ(run.bowl.flat(), plain.bowl.flat());
    EXPECT_EQ(run.bowl.moments(), plain.bowl.moments());
    EXPECT_EQ(run.machine.statistics().skipped_updates, 1);
  }
}

TEST(NonFiniteBatch, AtSnapshotKeepsPredictionLength) {
  PhaseMachine::Setup setup = eager_setup();
  setup.phases.skip_backward.trial_steps = 1;
  BowlRun run({}, setup, 0);
  const auto of_gate = [&](const char* name) {
    State state;
    run.machine.save(state);
    return state.integer(name);
  };
  run.run_until(Phase::kCorrect);
  run.step();  // accepted
  const std::int64_t length = of_gate("phases.gate.length");
  EXPECT_EQ(length, 2);
  run.run_until(Phase::kPredict);
  run.machine.step(run.bowl.broken_batch());
  const PhaseOutcome outcome = run.step();
  EXPECT_EQ(outcome.decision, Decision::kReverted);
  EXPECT_EQ(of_gate("phases.gate.length"), length) << "it never moved";
  EXPECT_EQ(of_gate("phases.gate.last.decision"), static_cast<int>(Decision::kReverted));
  EXPECT_EQ(run.machine.statistics().predictions.reverted, 1);
}

TEST(NonFiniteBatch, EndsRunAfterTooManyConsecutive) {
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

TEST(NonFiniteBatch, CountsOnlyConsecutiveSkips) {
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
