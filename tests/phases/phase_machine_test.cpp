#include "hybrid_trainer/phases/phase_machine.h"

#include <gtest/gtest.h>

#include "tests/phases/quadratic_bowl.h"

namespace hybrid_trainer {
namespace {

std::string phases_of(const std::vector<PhaseOutcome>& outcomes) {
  std::string letters;
  for (const PhaseOutcome& outcome : outcomes) letters += "WFPC"[static_cast<int>(outcome.phase)];
  return letters;
}

TEST(PhaseMachine, CyclesThroughAllPhases) {
  BowlRun run({}, eager_setup(), 0);
  EXPECT_EQ(phases_of(run.run(27)), "WWWWWFFFFFFPPPPCFFFFFFPPPPC");
  const PhaseStatistics& statistics = run.machine.statistics();
  EXPECT_EQ(statistics.predictions.made, 2);
  EXPECT_EQ(statistics.of(Phase::kPredict).steps, 8);
  EXPECT_EQ(statistics.steps(), 27);
}

TEST(PhaseMachine, WithoutPredictMatchesPlainTraining) {
  PhaseMachine::Setup setup;
  setup.phases.max_predict_steps = 0;
  setup.phases.skip_backward.predictor = "linear";
  setup.phases.warmup_steps = 3;
  BowlRun run({}, setup, 0.1);
  QuadraticBowl plain;
  plain.enter_phase(Phase::kFull);
  for (int i = 0; i < 100; ++i) {
    const PhaseOutcome outcome = run.step();
    EXPECT_EQ(outcome.loss, plain.wait_for_gradient(plain.batch(i, 0.1)).loss);
    plain.apply_gradient();
    EXPECT_EQ(run.bowl.flat(), plain.flat());
  }
  EXPECT_EQ(run.bowl.directions_asked + run.bowl.forwards + run.bowl.moves, 0);
  const MemoryUse use = run.bowl.stream().pool()->use();
  EXPECT_EQ(use.peak[static_cast<std::size_t>(MemoryKind::kPredictor)], 0u);
}

/// Resumes from another run's state with a different number of steps.
std::unique_ptr<BowlRun> resumed_to(const BowlRun& run, std::int64_t steps) {
  PhaseMachine::Setup setup = eager_setup();
  setup.steps = steps;
  auto resumed = std::make_unique<BowlRun>(QuadraticBowl::Options{}, setup, run.noise);
  State state;
  run.machine.save(state);
  resumed->bowl.restore(run.bowl.saved());
  resumed->machine.load(state);
  resumed->steps = run.steps;
  return resumed;
}

TEST(PhaseMachine, ShortenedRunDecidesInLastStep) {
  BowlRun run({}, eager_setup(), 0.1);
  std::string phases;
  for (int i = 0; i < 60; ++i) {
    for (const std::int64_t left : {1, 2, 3}) {
      const auto shorter = resumed_to(run, run.steps + left);
      const std::int64_t undecided = run.machine.undecided_steps();
      const std::vector<PhaseOutcome> outcomes = shorter->run(left);
      EXPECT_NE(outcomes.back().phase, Phase::kPredict) << i << ", " << left << " left";
      EXPECT_EQ(shorter->machine.undecided_steps(), 0);
      EXPECT_TRUE(shorter->bowl.snapshot().empty());
      if (left == 1 && undecided > 0) {
        EXPECT_NE(outcomes.front().decision, Decision::kNone);
        phases += 'u';
      } else if (left == 1 && run.machine.phase() == Phase::kPredict) {
        EXPECT_EQ(outcomes.front().phase, Phase::kFull) << "nothing has been predicted yet";
        phases += 'p';
      }
    }
    run.step();
  }
  EXPECT_NE(phases.find('p'), std::string::npos);
  EXPECT_NE(phases.find('u'), std::string::npos);
}

TEST(PhaseMachine, GivingUpCancelsDuePrediction) {
  BowlRun run({}, eager_setup(), 0.1);
  run.run_until(Phase::kPredict);
  run.machine.disable_prediction();
  EXPECT_EQ(phases_of(run.run(30)), std::string(30, 'F'));
  EXPECT_EQ(run.machine.statistics().predictions.made, 0);
}

TEST(PhaseMachine, OutOfMemoryForDirectionStopsPredictions) {
  PhaseMachine::Setup setup = eager_setup();
  setup.phases.skip_backward.trial_share = 1;
  BowlRun run({}, setup, 0.1), plain({}, setup, 0.1);
  run.bowl.is_full = true;
  int told = 0;
  for (const PhaseOutcome& outcome : run.run(60)) {
    const bool tells = outcome.event.find("no predictions from now on: device memory: full") == 0;
    told += tells;
    EXPECT_EQ(outcome.warns, tells) << outcome.event;
    EXPECT_EQ(outcome.updates, 1);
  }
  EXPECT_EQ(told, 1);
  EXPECT_EQ(run.machine.statistics().predictions.made, 0);
  State state;
  run.machine.save(state);
  plain.machine.load(state);
  EXPECT_EQ(phases_of(plain.run(30)), std::string(30, 'F'))
      << "predictions stay disabled after a resume";
}

/// The other ranks would continue to predict.
TEST(PhaseMachine, OutOfMemoryEndsMultiRankRun) {
  PhaseMachine::Setup setup = eager_setup();
  setup.phases.skip_backward.trial_share = 1;
  for (const bool steps_need_all : {false, true}) {
    BowlRun run({}, setup, 0.1);
    run.bowl.is_several = true;
    (steps_need_all ? run.bowl.steps_need_all : run.bowl.is_full) = true;
    try {
      run.run(60);
      FAIL() << steps_need_all;
    } catch (const OutOfMemory& error) {
      const std::string told = error.what();
      EXPECT_EQ(told.find("device memory: full; phases.max_predict_steps=0 trains"), 0u) << told;
    }
  }
}

TEST(PhaseMachine, OutOfMemoryInStepStopsPredictions) {
  PhaseMachine::Setup setup = eager_setup();
  setup.phases.skip_backward.trial_share = 1;
  BowlRun run({}, setup, 0.1);
  run.bowl.steps_need_all = true;
  int told = 0;
  for (const PhaseOutcome& outcome : run.run(60)) {
    told += outcome.event.find("no predictions from now on: device memory: full") == 0;
    EXPECT_EQ(outcome.updates, 1);
  }
  EXPECT_EQ(told, 1);
  EXPECT_EQ(run.machine.statistics().predictions.made, 0);
}

TEST(PhaseMachine, ReportedUpdatesMatchOptimizer) {
  BowlRun run({}, eager_setup(), 0.1);
  std::int64_t said = 0;
  for (const PhaseOutcome& outcome : run.run(200)) {
    said += outcome.updates;
    EXPECT_EQ(outcome.updates > 0, outcome.phase != Phase::kPredict);
  }
  EXPECT_EQ(run.bowl.updates, said);
}

TEST(PhaseMachine, CostCountsEveryMeasurement) {
  BowlRun run({}, eager_setup(), 0.1);
  double cost = 0;
  for (const PhaseOutcome& outcome : run.run(200)) cost += outcome.cost;
  const double aims = 0.3 * static_cast<double>(run.bowl.directions_asked);
  EXPECT_GT(aims, 0);
  EXPECT_NEAR(cost, run.bowl.measurements + 0.35 * run.bowl.forwards + aims, 1e-9);
  double total = 0;
  for (const PhaseTotals& totals : run.machine.statistics().phases) total += totals.cost;
  EXPECT_NEAR(total, cost, 1e-9);
}

TEST(PhaseMachine, CountsTokensAndSeconds) {
  BowlRun run({}, eager_setup(), 0);
  run.run(20);
  const PhaseTotals& full = run.machine.statistics().of(Phase::kFull);
  EXPECT_EQ(full.tokens, full.steps * QuadraticBowl::kWeights);
  EXPECT_GT(full.seconds, 0);
}

TEST(PhaseMachine, LowConfidencePreventsPredict) {
  PhaseMachine::Setup setup = eager_setup();
  setup.phases.skip_backward.trial_share = 0;
  setup.phases.forward_cost = 0.01;
  QuadraticBowl::Options slow;
  slow.learning_rate = 0.002;
  for (const double scale : {1.0, -1.0}) {  // downhill, then uphill
    setup.phases.skip_backward.confidence_threshold = 0.99;
    BowlRun run(slow, setup, 0);
    run.run(20);
    ASSERT_EQ(run.machine.statistics().predictions.made, 1) << "only the probe";
    run.bowl.options().direction_scale = scale;
    std::string events;
    for (const PhaseOutcome& outcome : run.run(40)) events += outcome.event;
    const bool refused = events.find("no prediction: confidence 0 is below 0.99") != events.npos;
    EXPECT_EQ(refused, scale < 0) << events;
    EXPECT_EQ(run.machine.statistics().predictions.made > 1, scale > 0);
  }
}

TEST(PhaseMachine, OscillationReducesPredictions) {
  PhaseMachine::Setup setup = eager_setup();
  setup.divergence.window = 8;
  QuadraticBowl::Options slow;
  slow.learning_rate = 1e-4;
  const auto run_with = [&](double oscillation) {
    setup.divergence.oscillation = oscillation;
    BowlRun run(slow, setup, 0);
    for (int i = 0; i < 300; ++i) {  // every second batch is far away
      Batch batch = run.bowl.batch(i, 0);
      for (int k = 0; k < 10; ++k) batch.at("centres").data<float>()[k] = i % 2 ? 0.0f : 10.0f;
      run.machine.step(batch);
    }
    return run.machine.statistics().predictions.made;
  };
  EXPECT_LT(run_with(0.5), run_with(1.0));
}

TEST(PhaseMachine, HarmfulPredictionsAreOnlyProbed) {
  PhaseMachine::Setup setup;
  setup.phases.warmup_steps = 20;
  setup.phases.skip_backward.confidence_threshold = 0;
  QuadraticBowl::Options uphill;
  uphill.direction_scale = -1;
  BowlRun run(uphill, setup, 0.2);
  run.run(2000);
  const PhaseStatistics& statistics = run.machine.statistics();
  EXPECT_EQ(statistics.trials, statistics.predictions.made);
  EXPECT_GT(statistics.predictions.made, 2);
  EXPECT_LE(statistics.of(Phase::kPredict).steps, 0.02 * 2000 + 3);
}

TEST(PhaseMachine, ClosesGateOnHarmForAnyFullLength) {
  for (const std::int64_t full_steps : {1, 2, 3, 10}) {
    PhaseMachine::Setup setup;
    setup.phases.warmup_steps = 20;
    setup.phases.full_steps = full_steps;
    setup.phases.skip_backward.decay = 1;
    setup.phases.skip_backward.trial_share = 0.05;
    setup.phases.skip_backward.evidence_sigmas = 0;
    setup.phases.forward_cost = 0.01;
    setup.phases.skip_backward.direction_cost = 0;
    QuadraticBowl::Options slow;
    slow.learning_rate = 0.001;
    BowlRun run(slow, setup, 0);
    run.run(400);
    const auto predicted = [&] { return run.machine.statistics().of(Phase::kPredict).steps; };
    const std::int64_t helpful = predicted();
    EXPECT_GT(helpful, 60) << "the gate must have been open, full_steps " << full_steps;
    run.bowl.options().direction_scale = -1;
    run.run(400);
    EXPECT_LT(predicted() - helpful, 0.05 * 800 + 60) << "full_steps " << full_steps;
  }
}

TEST(PhaseMachine, KeepsFourFullStepsBetweenPredictions) {
  PhaseMachine::Setup setup = eager_setup();
  setup.phases.full_steps = 1;
  BowlRun run({}, setup, 0);
  const std::string phases = phases_of(run.run(40));
  EXPECT_EQ(phases.substr(0, 23), "WWWWWFFFFPPPPCFFFFPPPPC");
}

TEST(PhaseMachine, DecidesEveryPredictionBeforeRunEnds) {
  std::int64_t made = 0, shortened = 0;
  for (std::int64_t steps = 1; steps <= 60; ++steps) {
    PhaseMachine::Setup setup = eager_setup();
    setup.steps = steps;
    BowlRun run({}, setup, 0);
    const auto outcomes = run.run(steps);
    const PredictionCounts& counts = run.machine.statistics().predictions;
    EXPECT_EQ(counts.made, counts.accepted + counts.shrunk + counts.reverted) << steps << " steps";
    EXPECT_EQ(run.machine.undecided_steps(), 0);
    EXPECT_NE(outcomes.back().phase, Phase::kPredict);
    made += counts.made;
    shortened += run.machine.statistics().of(Phase::kPredict).steps % 4 != 0;
  }
  EXPECT_GT(made, 60);
  EXPECT_GT(shortened, 5) << "predictions use the remaining steps";
}

TEST(PhaseMachine, UndecidedStepsLastUntilDecision) {
  BowlRun run({}, eager_setup(), 0);
  std::int64_t undecided = 0;
  for (int i = 0; i < 60; ++i) {
    const Phase phase = run.step().phase;
    undecided = phase == Phase::kPredict ? undecided + 1 : 0;
    EXPECT_EQ(run.machine.undecided_steps(), undecided);
    EXPECT_EQ(undecided > 0, !run.bowl.snapshot().empty());
  }
}

// Includes the first probe if the run's length is known.
TEST(PhaseMachine, ProbesStayWithinTrialShare) {
  for (const std::int64_t steps : {200, 2000}) {
    PhaseMachine::Setup setup = eager_setup();
    setup.phases.skip_backward.trial_share = 0.005;
    setup.steps = steps;
    QuadraticBowl::Options uphill;
    uphill.direction_scale = -1;
    BowlRun run(uphill, setup, 0.2);
    run.run(static_cast<int>(steps));
    const PhaseStatistics& statistics = run.machine.statistics();
    EXPECT_EQ(statistics.predictions.made > 0, steps == 2000);
    EXPECT_LE(statistics.cost(), 1.01 * static_cast<double>(steps)) << steps;
  }
}

TEST(PhaseMachine, ReportsProbeDespiteLowConfidence) {
  PhaseMachine::Setup setup = eager_setup();
  setup.phases.skip_backward.confidence_threshold = 0.99;
  QuadraticBowl::Options uphill;
  uphill.direction_scale = -1;
  BowlRun run(uphill, setup, 0.2);
  std::string events;
  for (const PhaseOutcome& outcome : run.run(60)) events += outcome.event + "\n";
  EXPECT_NE(events.find("to measure their gain, although the confidence below 0.001 is less than "
                        "0.99"),
            events.npos)
      << events;
}

TEST(PhaseMachine, ReportsOnceWhyPredictIsSkipped) {
  PhaseMachine::Setup setup = eager_setup();
  setup.phases.skip_backward.trial_share = 0.02;
  QuadraticBowl::Options uphill;
  uphill.direction_scale = -1;
  BowlRun run(uphill, setup, 0.2);
  std::string events;
  for (const PhaseOutcome& outcome : run.run(150)) events += outcome.event + "\n";
  const auto first = events.find("the gate keeps Predict off: ");
  ASSERT_NE(first, events.npos) << events;
  EXPECT_NE(events.find("; next probe from step ", first), events.npos);
  EXPECT_EQ(events.find("the gate keeps Predict off", first + 1), events.npos) << events;
}

TEST(PhaseMachine, ProbesWithCostlyDirectionStayInShare) {
  PhaseMachine::Setup setup = eager_setup();
  setup.phases.skip_backward.trial_share = 0.05;
  setup.phases.skip_backward.direction_cost = 20;
  QuadraticBowl::Options uphill;
  uphill.direction_scale = -1;
  BowlRun run(uphill, setup, 0.2);
  int trials = 0;
  for (int step = 1; step <= 6000; ++step) {
    if (run.step().phase != Phase::kCorrect || ++trials == 1) continue;
    const PhaseStatistics& statistics = run.machine.statistics();
    EXPECT_LE(statistics.cost() - step, 2 * 0.05 * step) << "trial " << trials;
  }
  EXPECT_GT(trials, 3);
}

TEST(PhaseMachine, KeepsPredictingWhenItHelps) {
  for (const std::string predictor : {"momentum", "linear"}) {
    PhaseMachine::Setup setup;
    setup.phases.warmup_steps = 20;
    setup.phases.skip_backward.predictor = predictor;
    setup.phases.skip_backward.decay = 1;
    setup.phases.skip_backward.trial_share = 0.2;
    QuadraticBowl::Options slow;
    slow.learning_rate = 0.001;
    BowlRun run(slow, setup, 0), plain(slow, setup, 0);
    run.run(600);
    const PhaseStatistics& statistics = run.machine.statistics();
    EXPECT_GT(statistics.of(Phase::kPredict).steps, 150) << predictor;
    EXPECT_LT(statistics.trials, statistics.predictions.made) << predictor;
    double cost = 0;
    for (const PhaseTotals& totals : statistics.phases) cost += totals.cost;
    QuadraticBowl same_cost(slow);
    same_cost.enter_phase(Phase::kFull);
    for (int i = 0; i < static_cast<int>(cost); ++i) {
      same_cost.wait_for_gradient(same_cost.batch(i, 0));
      same_cost.apply_gradient();
    }
    EXPECT_LT(run.bowl.loss(run.bowl.batch(0, 0)), same_cost.loss(same_cost.batch(0, 0)))
        << predictor;
  }
}

}  // namespace
}  // namespace hybrid_trainer
