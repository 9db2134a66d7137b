#include <gtest/gtest.h>

#include "tests/phases/quadratic_bowl.h"

namespace hybrid_trainer {
namespace {

PhaseMachine::Setup late_setup() {
  PhaseMachine::Setup setup;
  setup.phases.method = "asynchronous_optimizer";
  setup.phases.warmup_steps = 3;
  setup.phases.full_steps = 4;
  setup.phases.max_predict_steps = 5;
  setup.phases.correct_steps = 2;
  return setup;
}

std::string letters_of(const std::vector<PhaseOutcome>& outcomes) {
  std::string text;
  for (const PhaseOutcome& outcome : outcomes) text += name_of(outcome.phase)[0];
  return text;
}

TEST(SpeculatePhase, FollowsFullWithoutGateOrConfidence) {
  BowlRun run({}, late_setup(), 0.1);
  EXPECT_EQ(letters_of(run.run(26)), "wwwffffpppppccffffpppppccf");
  EXPECT_EQ(run.machine.statistics().predictions.made, 0);
  EXPECT_EQ(run.machine.undecided_steps(), 0);
}

TEST(SpeculatePhase, AppliesEachUpdateOnceByCorrect) {
  BowlRun run({}, late_setup(), 0.1);
  run.run(12);
  EXPECT_EQ(run.bowl.updates, 11);  // one is pending
  run.step();
  EXPECT_EQ(run.bowl.updates, 13);
  const std::vector<std::string> wanted{"warmup", "full", "predict", "exact", "correct"};
  EXPECT_EQ(run.bowl.log, wanted);
}

TEST(SpeculatePhase, LastStepOfRunIsExact) {
  PhaseMachine::Setup setup = late_setup();
  setup.phases.max_predict_steps = 1000;
  setup.steps = 12;
  BowlRun run({}, setup, 0.1);
  EXPECT_EQ(letters_of(run.run(12)), "wwwffffppppc");
}

TEST(SpeculatePhase, ShortenedRunEndsInCorrect) {
  PhaseMachine::Setup setup = late_setup();
  setup.phases.max_predict_steps = 1000;
  setup.steps = 40;
  BowlRun longer({}, setup, 0.1);
  longer.run(10);
  State state;
  longer.machine.save(state);
  setup.steps = 11;
  PhaseMachine shorter(longer.bowl, setup);
  shorter.load(state);
  EXPECT_EQ(shorter.step(longer.bowl.batch(10, 0.1)).phase, Phase::kCorrect);
  EXPECT_EQ(longer.bowl.log.back(), "correct");
}

TEST(SpeculatePhase, ReportsLagOfEachStep) {
  PhaseMachine::Setup setup = late_setup();
  setup.phases.max_predict_steps = 6;
  BowlRun run({}, setup, 0.1);
  std::vector<std::int64_t> lags;
  for (const PhaseOutcome& outcome : run.run(14)) lags.push_back(outcome.lag);
  const std::vector<std::int64_t> wanted{0, 0, 0, 0, 0, 0, 0, 0, 1, 1, 1, 1, 1, 0};
  EXPECT_EQ(lags, wanted);
}

TEST(SpeculatePhase, EndsAtHighPredictionError) {
  PhaseMachine::Setup setup = late_setup();
  setup.phases.asynchronous_optimizer.prediction_error_limit = 0.8;
  BowlRun run({}, setup, 0.1);
  run.bowl.prediction_error = 0.9;
  const std::vector<PhaseOutcome> outcomes = run.run(12);
  EXPECT_EQ(letters_of(outcomes), "wwwffffppccf");
  EXPECT_EQ(outcomes[8].prediction_error, 0.9);
  EXPECT_TRUE(outcomes[8].warns);
  for (const char* word :
       {"0.9", "bowl", "phases.asynchronous_optimizer.prediction_error_limit 0.8", "next 6 steps"})
    EXPECT_NE(outcomes[8].event.find(word), std::string::npos) << outcomes[8].event;
}

TEST(SpeculatePhase, IgnoresErrorWithoutLimitOrPrediction) {
  for (const std::string side : {"anticipated", "selective", "none"}) {
    PhaseMachine::Setup setup = late_setup();
    setup.phases.asynchronous_optimizer.prediction_error_limit = side == "anticipated" ? 0 : 0.1;
    setup.phases.asynchronous_optimizer.device_side = side;
    BowlRun run({}, setup, 0.1);
    run.bowl.prediction_error = 50;
    EXPECT_EQ(letters_of(run.run(14)), "wwwffffpppppcc");
  }
}

TEST(SpeculatePhase, SkippedGradientsMakeNoUpdateThenEndRun) {
  PhaseMachine::Setup setup = late_setup();
  setup.divergence.max_skipped_updates = 2;
  BowlRun run({}, setup, 0.1);
  run.run(9);
  const std::int64_t before = run.bowl.updates;
  const PhaseOutcome skipped = run.machine.step(run.bowl.broken_batch());
  EXPECT_EQ(skipped.updates, 0);
  EXPECT_TRUE(skipped.warns);
  EXPECT_EQ(run.bowl.updates, before + 1);  // the one that was pending
  run.machine.step(run.bowl.broken_batch());
  EXPECT_EQ(run.bowl.updates, before + 1);
  EXPECT_THROW(run.machine.step(run.bowl.broken_batch()), Diverged);
}

}  // namespace
}  // namespace hybrid_trainer
