#include <gtest/gtest.h>

#include "hybrid_trainer/core/error.h"
#include "tests/phases/quadratic_bowl.h"

namespace hybrid_trainer {
namespace {

constexpr std::int64_t kRunSteps = 40;

PhaseMachine::Setup with_micro_corrections() {
  PhaseMachine::Setup setup = eager_setup();
  setup.phases.skip_backward.correction_interval = 2;
  return setup;
}

QuadraticBowl::Options towards(double direction_scale) {
  QuadraticBowl::Options options;
  options.direction_scale = direction_scale;
  return options;
}

/// Runs out of memory at call `call` for the first prediction. Returns the run's events.
std::string run_short(BowlRun& run, std::int64_t call) {
  run.bowl.fails_at_call = call;
  std::string events;
  for (const PhaseOutcome& outcome : run.run(kRunSteps)) {
    events += concat(outcome.event, "\n");
    if (outcome.event.find("memory: full") != std::string::npos) {
      EXPECT_TRUE(outcome.warns);
    }
  }
  return events;
}

/// Number of calls until the first prediction is decided.
std::int64_t calls_for_one_prediction(const QuadraticBowl::Options& options) {
  BowlRun run(options, with_micro_corrections(), 0.1);
  run.run_until(Phase::kCorrect);
  EXPECT_NE(run.step().decision, Decision::kNone);
  return run.bowl.calls;
}

TEST(Shortage, AtAnyCallMatchesPlainTraining) {
  PhaseMachine::Setup plain_setup = with_micro_corrections();
  plain_setup.phases.max_predict_steps = 0;
  for (const double direction_scale : {1.0, 60.0, -1.0}) {  // accepted, shrunk, reverted
    const QuadraticBowl::Options options = towards(direction_scale);
    BowlRun plain(options, plain_setup, 0.1);
    plain.run(kRunSteps);
    const std::int64_t calls = calls_for_one_prediction(options);
    EXPECT_GT(calls, 20);
    for (std::int64_t call = 0; call < calls; ++call) {
      SCOPED_TRACE(concat("call ", call, " along ", direction_scale));
      BowlRun run(options, with_micro_corrections(), 0.1);
      const std::string events = run_short(run, call);
      EXPECT_NE(events.find("no predictions from now on: device memory: full"), std::string::npos)
          << events;
      EXPECT_EQ(run.bowl.flat(), plain.bowl.flat());
      EXPECT_EQ(run.bowl.moments(), plain.bowl.moments());
      EXPECT_LE(run.machine.statistics().predictions.made, 1);
      EXPECT_EQ(run.machine.statistics().steps(), kRunSteps);
      if (::testing::Test::HasFailure()) return;
    }
  }
}

TEST(Shortage, DuringPredictionIsDecidedInSameStep) {
  BowlRun run({}, with_micro_corrections(), 0);
  run.run_until(Phase::kPredict);
  run.run(2);
  run.bowl.fails_at_call = run.bowl.calls;
  const PhaseOutcome outcome = run.step();
  EXPECT_EQ(outcome.phase, Phase::kCorrect);
  EXPECT_EQ(outcome.decision, Decision::kReverted);
  EXPECT_EQ(outcome.updates, 3) << "the updates of two predicted steps and its own";
  EXPECT_NE(outcome.event.find("reverted: not enough memory in 2 predicted steps"),
            std::string::npos)
      << outcome.event;
  EXPECT_EQ(run.machine.undecided_steps(), 0);
}

TEST(Shortage, AfterPredictStepSurvivesResume) {
  BowlRun run({}, eager_setup(), 0);
  run.run_until(Phase::kPredict);
  run.step();
  run.bowl.fails_at_call = run.bowl.calls + 2;  // stores the batch, computes the loss, then moves
  EXPECT_EQ(run.step().phase, Phase::kPredict);
  EXPECT_EQ(run.machine.undecided_steps(), 2);
  State state;
  run.machine.save(state);
  BowlRun resumed({}, eager_setup(), 0);
  resumed.bowl.restore(run.bowl.saved());
  resumed.machine.load(state);
  resumed.steps = run.steps;
  for (BowlRun* either : {&run, &resumed}) {
    const PhaseOutcome outcome = either->step();
    EXPECT_EQ(outcome.decision, Decision::kReverted);
    EXPECT_NE(outcome.event.find("not enough memory"), std::string::npos) << outcome.event;
  }
  EXPECT_EQ(resumed.bowl.flat(), run.bowl.flat());
}

/// The other ranks would continue to predict.
TEST(Shortage, OnOneOfSeveralRanksEndsRun) {
  const std::int64_t calls = calls_for_one_prediction({});
  for (std::int64_t call = 0; call < calls; ++call) {
    BowlRun run({}, with_micro_corrections(), 0.1);
    run.bowl.is_several = true;
    EXPECT_THROW(run_short(run, call), OutOfMemory) << call;
  }
}

}  // namespace
}  // namespace hybrid_trainer
