#include <gtest/gtest.h>

#include <cmath>
#include <limits>

#include "hybrid_trainer/core/error.h"
#include "tests/phases/quadratic_bowl.h"

namespace hybrid_trainer {
namespace {

PhaseMachine::Setup own_setup() {
  PhaseMachine::Setup setup;
  setup.phases.method = "asynchronous_gradients";
  setup.phases.warmup_steps = 3;
  setup.phases.full_steps = 4;
  setup.phases.max_predict_steps = 5;
  setup.phases.correct_steps = 2;
  return setup;
}

TEST(OwnGradientPhase, AppliesEachUpdateOnceByCorrect) {
  BowlRun run({}, own_setup(), 0.1);
  run.run(12);
  EXPECT_EQ(run.bowl.updates, 11);  // the last one of Predict is pending
  const PhaseOutcome correct = run.step();
  EXPECT_EQ(correct.phase, Phase::kCorrect);
  EXPECT_EQ(correct.updates, 2);  // the pending one and its own
  EXPECT_EQ(run.bowl.updates, 13);
}

TEST(OwnGradientPhase, ReportsArrivedLoss) {
  BowlRun run({}, own_setup(), 0.1);
  run.run(7);
  const double own = run.step().loss;
  const PhaseOutcome second = run.step();
  EXPECT_EQ(second.loss, own);
  EXPECT_EQ(second.updates, 1);
}

TEST(OwnGradientPhase, ContinuesPredictAfterDrain) {
  BowlRun run({}, own_setup(), 0.1);
  run.run(9);
  PhaseOutcome outcome;
  run.machine.drain(outcome);
  EXPECT_EQ(outcome.updates, 1);
  EXPECT_EQ(run.bowl.updates, 9);
  EXPECT_EQ(run.step().phase, Phase::kPredict);
  EXPECT_EQ(run.bowl.updates, 9);
  run.machine.drain(outcome = {});
  run.machine.drain(outcome);  // nothing is pending
  EXPECT_EQ(outcome.updates, 1);
}

TEST(OwnGradientPhase, EndsEarlyAtHighPredictionError) {
  PhaseMachine::Setup setup = own_setup();
  BowlRun run({}, setup, 0.1);
  run.run(8);
  run.bowl.prediction_error = 2;
  const PhaseOutcome outcome = run.step();
  EXPECT_NE(outcome.event.find("above phases.asynchronous_gradients.prediction_error_limit"),
            std::string::npos)
      << outcome.event;
  EXPECT_EQ(run.step().phase, Phase::kCorrect);
}

TEST(OwnGradientPhase, FailedDrainLeavesExactWeights) {
  PhaseMachine::Setup setup = own_setup();
  setup.divergence.max_skipped_updates = 0;
  BowlRun run({}, setup, 0.1);
  run.run(8);
  run.machine.step(run.bowl.batch(8, std::numeric_limits<double>::quiet_NaN()));
  PhaseOutcome outcome;
  EXPECT_THROW(run.machine.drain(outcome), Diverged);
  EXPECT_EQ(run.bowl.log.back(), "exact");
  EXPECT_EQ(run.bowl.updates, 8);
  for (const Tensor& tensor : run.bowl.values()) {
    for (std::int64_t i = 0; i < tensor.elements(); ++i)
      EXPECT_TRUE(std::isfinite(tensor.data<float>()[i]));
  }
}

}  // namespace
}  // namespace hybrid_trainer
