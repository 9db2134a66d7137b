#include <gtest/gtest.h>

#include <limits>

#include "hybrid_trainer/core/error.h"
#include "tests/phases/quadratic_bowl.h"

namespace hybrid_trainer {
namespace {

PhaseMachine::Setup local_setup() {
  PhaseMachine::Setup setup;
  setup.phases.method = "local_sgd";
  setup.phases.local_sgd.steps = 2;
  setup.phases.warmup_steps = 3;
  setup.phases.full_steps = 4;
  setup.phases.max_predict_steps = 5;
  setup.phases.correct_steps = 2;
  return setup;
}

TEST(LocalStepPhase, EachStepUpdatesAndCorrectStartsExact) {
  BowlRun run({}, local_setup(), 0.1);
  for (int step = 1; step <= 12; ++step) {
    const PhaseOutcome outcome = run.step();
    EXPECT_EQ(outcome.updates, 1);
    EXPECT_TRUE(outcome.gradient_norm.has_value());
    EXPECT_EQ(outcome.phase == Phase::kPredict, step > 7);
    if (step > 7) {
      EXPECT_EQ(outcome.lag, 1 + step % 2);
    }
  }
  EXPECT_EQ(run.step().phase, Phase::kCorrect);
  const std::vector<std::string> wanted{"warmup", "full", "predict", "exact", "correct"};
  EXPECT_EQ(run.bowl.log, wanted);
}

TEST(LocalStepPhase, ReportsNonFiniteStepsAndEndsIfAllAre) {
  BowlRun run({}, local_setup(), 0.1);
  constexpr double kNan = std::numeric_limits<double>::quiet_NaN();
  run.run(7);
  run.machine.step(run.bowl.batch(7, kNan));
  const PhaseOutcome told = run.machine.step(run.bowl.batch(8, 0.1));
  EXPECT_NE(told.event.find("1 of 2 independent steps of the ranks"), std::string::npos)
      << told.event;
  EXPECT_TRUE(told.warns);
  run.machine.step(run.bowl.batch(9, kNan));
  EXPECT_THROW(run.machine.step(run.bowl.batch(10, kNan)), Diverged);
  EXPECT_EQ(run.machine.statistics().skipped_updates, 3);
}

}  // namespace
}  // namespace hybrid_trainer
