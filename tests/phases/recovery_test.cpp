#include "phases/divergence.h"

#include <gtest/gtest.h>

#include <set>

#include "tests/phases/quadratic_bowl.h"

namespace hybrid_trainer {
namespace {

/// Kinds of batches whose loss or gradient is abnormal.
enum class Wrong { kNot, kSpike, kBroken };

struct Trouble {
  PhaseMachine::Setup setup = eager_setup();
  QuadraticBowl::Options options{};
  Trouble() {
    setup.divergence.window = 4;
    setup.divergence.recovery_steps = 12;
    setup.divergence.oscillation = 1;
    setup.divergence.gradient_factor = 1e6;
  }
};

Batch batch_of(const QuadraticBowl& bowl, std::int64_t i, double noise, Wrong wrong) {
  if (wrong == Wrong::kBroken) return bowl.broken_batch();
  Batch batch = bowl.batch(i, noise);
  if (wrong == Wrong::kSpike) batch.at("centres").data<float>()[9] = 100;
  return batch;
}

/// A run whose step `at` was abnormal, with the outcome of that step.
struct RunWith {
  BowlRun run;
  PhaseOutcome outcome;
  RunWith(const Trouble& trouble, std::int64_t at, Wrong wrong, double noise = 0)
      : run(trouble.options, trouble.setup, noise) {
    run.run(at);
    outcome = next(wrong);
  }
  PhaseOutcome next(Wrong wrong) {
    return run.machine.step(batch_of(run.bowl, run.steps++, run.noise, wrong));
  }
  /// Runs `steps` steps. Returns the lengths of Predict and the number of steps before the first.
  std::pair<std::vector<int>, int> predictions(int steps) {
    std::vector<int> lengths;
    int before = 0;
    for (int i = 0; i < steps; ++i) {
      const bool begins = run.machine.undecided_steps() == 0;
      const bool predicts = run.step().phase == Phase::kPredict;
      if (predicts && begins) lengths.push_back(0);
      if (predicts) ++lengths.back();
      if (lengths.empty()) ++before;
    }
    return {lengths, before};
  }
};

constexpr std::int64_t kInFull = 8;  // in eager_setup, Full is steps 5 to 10

TEST(Recovery, SeverityFollowsSignal) {
  EXPECT_EQ(severity_of(Signal::kNone), Severity::kNone);
  EXPECT_EQ(severity_of(Signal::kVanishing), Severity::kCaution);
  EXPECT_EQ(severity_of(Signal::kOscillation), Severity::kCaution);
  EXPECT_EQ(severity_of(Signal::kLoss), Severity::kWarning);
  EXPECT_EQ(severity_of(Signal::kExplosion), Severity::kWarning);
  EXPECT_EQ(severity_of(Signal::kNotFinite), Severity::kCritical);
}

TEST(Recovery, OscillationSkipsOneBatchPerWindow) {
  PhaseMachine::Setup setup = eager_setup();
  setup.phases.max_predict_steps = 0;
  setup.divergence.window = 8;
  setup.divergence.gradient_factor = 1e6;
  setup.divergence.loss_sigmas = 1e6;
  setup.divergence.on_caution = Recovery::kSkipBatch;
  QuadraticBowl::Options slow;
  slow.learning_rate = 1e-5;
  BowlRun run(slow, setup, 0);
  std::vector<std::int64_t> skipped;
  for (; run.steps < 60; ++run.steps) {
    Batch batch = run.bowl.batch(0, 0);
    batch.at("centres").data<float>()[9] = run.steps % 2 == 0 ? 1.0f : 0.5f;
    if (run.machine.step(batch).recovery == Recovery::kSkipBatch) skipped.push_back(run.steps);
  }
  ASSERT_GE(skipped.size(), 3u);
  for (std::size_t i = 1; i < skipped.size(); ++i) EXPECT_GT(skipped[i] - skipped[i - 1], 8);
}

TEST(Recovery, DependsOnSeverityAndPersistence) {
  DivergenceConfig config;
  config.on_caution = Recovery::kReduceHorizon;
  config.on_warning = Recovery::kForceFull;
  config.on_critical = Recovery::kRollBack;
  config.critical_after = 3;
  const auto kind = [&](Signal signal, std::int64_t in_a_row) {
    return choose_recovery({signal, "why"}, in_a_row, config).kind;
  };
  EXPECT_EQ(kind(Signal::kNone, 0), Recovery::kContinue);
  EXPECT_EQ(kind(Signal::kOscillation, 9), Recovery::kReduceHorizon);
  EXPECT_EQ(kind(Signal::kLoss, 2), Recovery::kForceFull);
  EXPECT_EQ(kind(Signal::kLoss, 3), Recovery::kRollBack);
  EXPECT_EQ(kind(Signal::kNotFinite, 1), Recovery::kRollBack);
  const RecoveryAction action = choose_recovery({Signal::kNotFinite, "why"}, 1, config);
  EXPECT_EQ(action.reason, "why");
  EXPECT_EQ(action.amount, config.roll_back_rate);
  EXPECT_NE(action.text(), "");
}

TEST(Recovery, DefaultSkipsOnlyNonFiniteBatches) {
  Trouble trouble;
  EXPECT_EQ(RunWith(trouble, kInFull, Wrong::kSpike).outcome.recovery, Recovery::kContinue);
  const RunWith broken(trouble, kInFull, Wrong::kBroken);
  EXPECT_EQ(broken.outcome.recovery, Recovery::kSkipBatch);
  EXPECT_EQ(broken.outcome.updates, 0);
}

TEST(Recovery, SkipsBatchWithHighLoss) {
  Trouble trouble;
  trouble.setup.divergence.on_warning = Recovery::kSkipBatch;
  BowlRun before(trouble.options, trouble.setup, 0);
  before.run(kInFull);
  RunWith skipped(trouble, kInFull, Wrong::kSpike);
  EXPECT_EQ(skipped.outcome.recovery, Recovery::kSkipBatch);
  EXPECT_EQ(skipped.outcome.updates, 0);
  EXPECT_TRUE(skipped.outcome.warns);
  EXPECT_NE(skipped.outcome.event.find("skipped the update: loss"), std::string::npos);
  EXPECT_EQ(skipped.run.bowl.flat(), before.bowl.flat());
  EXPECT_EQ(skipped.run.bowl.moments(), before.bowl.moments());
  EXPECT_EQ(skipped.run.machine.statistics().skipped_updates, 1);
}

TEST(Recovery, ShortensPredictionsTemporarily) {
  Trouble trouble;
  trouble.setup.divergence.on_warning = Recovery::kReduceHorizon;
  trouble.setup.divergence.recovery_steps = 16;
  RunWith run(trouble, kInFull, Wrong::kSpike);
  EXPECT_EQ(run.outcome.recovery, Recovery::kReduceHorizon);
  EXPECT_NE(run.outcome.event.find("the length of predictions is multiplied by 0.5 for 16 steps"),
            std::string::npos)
      << run.outcome.event;
  EXPECT_EQ(run.outcome.updates, 1) << "the batch itself must be trained on";
  const auto [lengths, before] = run.predictions(60);
  ASSERT_GE(lengths.size(), 3u);
  EXPECT_EQ(lengths.front(), 2);
  EXPECT_EQ(lengths.back(), 4);
}

TEST(Recovery, ForcesFullForRecoverySteps) {
  Trouble trouble;
  const auto until_predict = [&] {
    return RunWith(trouble, kInFull, Wrong::kSpike).predictions(60).second;
  };
  EXPECT_LT(until_predict(), 12);
  trouble.setup.divergence.on_warning = Recovery::kForceFull;
  EXPECT_GE(until_predict(), 12);
  EXPECT_LT(until_predict(), 30) << "Full must end eventually";
  EXPECT_EQ(RunWith(trouble, kInFull, Wrong::kSpike).outcome.recovery, Recovery::kForceFull);
}

TEST(Recovery, RaisesThresholdForRecoverySteps) {
  Trouble trouble;
  trouble.setup.phases.skip_backward.confidence_threshold = 0.2;
  trouble.setup.divergence.threshold_raise = 0.999999;
  const double noise = 0.5;
  const auto until_predict = [&] {
    return RunWith(trouble, kInFull, Wrong::kSpike, noise).predictions(80).second;
  };
  EXPECT_LT(until_predict(), 12);
  trouble.setup.divergence.on_warning = Recovery::kRaiseThreshold;
  EXPECT_GE(until_predict(), 12);
  EXPECT_LT(until_predict(), 30) << "the threshold must recover";
  EXPECT_EQ(RunWith(trouble, kInFull, Wrong::kSpike, noise).outcome.recovery,
            Recovery::kRaiseThreshold);
}

TEST(Recovery, ResetsPredictor) {
  Trouble trouble;
  trouble.setup.phases.skip_backward.predictor = "linear";
  trouble.setup.phases.skip_backward.history_interval = 2;
  const auto until_predict = [&] {
    return RunWith(trouble, kInFull, Wrong::kSpike).predictions(60).second;
  };
  const int before = until_predict();
  trouble.setup.divergence.on_warning = Recovery::kResetPredictor;
  EXPECT_GT(until_predict(), before) << "its history restarts";
  EXPECT_EQ(RunWith(trouble, kInFull, Wrong::kSpike).outcome.recovery, Recovery::kResetPredictor);
}

TEST(Recovery, RequestsRollbackWithoutUpdate) {
  Trouble trouble;
  trouble.setup.divergence.on_critical = Recovery::kRollBack;
  trouble.setup.divergence.max_skipped_updates = 0;
  BowlRun before(trouble.options, trouble.setup, 0);
  before.run(kInFull);
  const RunWith asks(trouble, kInFull, Wrong::kBroken);
  EXPECT_EQ(asks.outcome.recovery, Recovery::kRollBack);
  EXPECT_EQ(asks.run.bowl.flat(), before.bowl.flat());
}

TEST(Recovery, AbortReportsReasonInOutcome) {
  Trouble trouble;
  trouble.setup.divergence.on_warning = Recovery::kAbort;
  BowlRun run(trouble.options, trouble.setup, 0);
  run.run(kInFull);
  const auto good = run.bowl.flat();
  PhaseOutcome outcome;
  EXPECT_THROW(run.machine.step(batch_of(run.bowl, 0, 0, Wrong::kSpike), outcome), Diverged);
  EXPECT_EQ(outcome.recovery, Recovery::kAbort);
  EXPECT_NE(outcome.event.find("divergence.on_warning"), std::string::npos) << outcome.event;
  EXPECT_EQ(run.bowl.flat(), good);
}

TEST(Recovery, ConsecutiveWarningsBecomeCritical) {
  Trouble trouble;
  trouble.options.learning_rate = 1e-6;  // the spikes do not change the weights
  trouble.setup.divergence.window = 32;
  trouble.setup.phases.max_predict_steps = 0;
  const auto recovery_of_third = [&] {
    RunWith run(trouble, 40, Wrong::kSpike);
    run.next(Wrong::kNot);
    run.next(Wrong::kSpike);
    return run.next(Wrong::kSpike).recovery;
  };
  trouble.setup.divergence.loss_sigmas = 1;
  EXPECT_EQ(recovery_of_third(), Recovery::kContinue);
  trouble.setup.divergence.critical_after = 2;
  EXPECT_EQ(recovery_of_third(), Recovery::kSkipBatch);
  trouble.setup.divergence.critical_after = 3;
  EXPECT_EQ(recovery_of_third(), Recovery::kContinue) << "a normal step restarts the count";
}

TEST(Recovery, InPredictAffectsOnlyPredictions) {
  Trouble trouble;
  trouble.setup.divergence.on_warning = Recovery::kAbort;
  BowlRun run(trouble.options, trouble.setup, 0);
  run.run_until(Phase::kPredict);
  const PhaseOutcome aborts = run.machine.step(batch_of(run.bowl, 0, 0, Wrong::kSpike));
  EXPECT_EQ(aborts.recovery, Recovery::kContinue) << "Correct decides";
  trouble.setup.divergence.on_critical = Recovery::kForceFull;
  BowlRun other(trouble.options, trouble.setup, 0);
  other.run_until(Phase::kPredict);
  const PhaseOutcome forces = other.machine.step(other.bowl.broken_batch());
  EXPECT_EQ(forces.recovery, Recovery::kForceFull);
  EXPECT_NE(forces.event.find("no prediction for 12 steps"), std::string::npos) << forces.event;
}

TEST(Recovery, PlainTrainingIgnoresPredictionActions) {
  Trouble trouble;
  trouble.setup.phases.max_predict_steps = 0;
  trouble.setup.divergence.on_warning = Recovery::kForceFull;
  EXPECT_EQ(RunWith(trouble, kInFull, Wrong::kSpike).outcome.recovery, Recovery::kContinue);
}

TEST(Recovery, ShortensAndEndsAsynchronousUpdates) {
  Trouble trouble;
  trouble.setup.phases.method = "asynchronous_optimizer";
  const auto late_steps = [&](Recovery recovery) {
    trouble.setup.divergence.on_warning = recovery;
    RunWith run(trouble, 12, Wrong::kSpike);  // in Predict
    int count = 0;
    for (const PhaseOutcome& outcome : run.run.run(12)) count += outcome.phase == Phase::kPredict;
    return count;
  };
  const int before = late_steps(Recovery::kContinue);
  EXPECT_LT(late_steps(Recovery::kReduceHorizon), before);
  EXPECT_EQ(late_steps(Recovery::kForceFull), 0);
}

TEST(Recovery, RepeatedActionsAccumulateAndExpire) {
  RecoveryAction shorter;
  shorter.kind = Recovery::kReduceHorizon;
  shorter.amount = 0.5;
  shorter.steps = 10;
  RecoveryEffects effects;
  effects.add(shorter, 100);
  EXPECT_EQ(effects.shortened(8, 109), 4);
  effects.add(shorter, 105);
  EXPECT_EQ(effects.shortened(8, 114), 2);
  EXPECT_EQ(effects.shortened(1, 114), 1);
  EXPECT_EQ(effects.shortened(8, 115), 8);
  RecoveryAction raise = shorter;
  raise.kind = Recovery::kRaiseThreshold;
  effects.add(raise, 100);
  EXPECT_EQ(effects.threshold(0.6, 105), 0.8);
  effects.add(raise, 105);
  EXPECT_EQ(effects.threshold(0.6, 110), 0.9);
  EXPECT_EQ(effects.threshold(0.6, 115), 0.6);
}

/// Steps of an abnormal run, resumed while the recovery is in effect.
TEST(Recovery, ResumeKeepsActiveRecovery) {
  for (const Recovery recovery : {Recovery::kReduceHorizon, Recovery::kRaiseThreshold,
                                  Recovery::kForceFull, Recovery::kSkipBatch}) {
    Trouble trouble;
    trouble.setup.divergence.on_warning = recovery;
    trouble.setup.divergence.critical_after = 3;
    RunWith whole(trouble, kInFull, Wrong::kSpike, 0.1);
    State state;
    whole.run.machine.save(state);
    BowlRun resumed(trouble.options, trouble.setup, 0.1);
    resumed.bowl.restore(whole.run.bowl.saved());
    resumed.machine.load(state);
    resumed.steps = whole.run.steps;
    for (int i = 0; i < 40; ++i) {
      const PhaseOutcome a = whole.run.step(), b = resumed.step();
      ASSERT_EQ(a.phase, b.phase) << name_of(recovery) << ", step " << i;
      ASSERT_EQ(a.event, b.event);
    }
    EXPECT_EQ(resumed.bowl.flat(), whole.run.bowl.flat());
  }
}

/// Each field changes the observable results of a run with a spike and a broken batch.
TEST(Recovery, EveryConfigFieldTakesEffect) {
  struct Flip {
    const char* field;
    std::function<void(DivergenceConfig&)> change;
    Recovery first = Recovery::kContinue;  // on_warning of both runs
  };
  const Flip flips[] = {
      {"on_caution", [](auto& c) { c.on_caution = Recovery::kSkipBatch; }},
      {"on_warning", [](auto& c) { c.on_warning = Recovery::kSkipBatch; }},
      {"on_critical", [](auto& c) { c.on_critical = Recovery::kForceFull; }},
      {"critical_after", [](auto& c) { c.critical_after = 1; }},
      {"recovery_steps", [](auto& c) { c.recovery_steps = 30; }, Recovery::kForceFull},
      {"horizon_factor", [](auto& c) { c.horizon_factor = 0.9; }, Recovery::kReduceHorizon},
      {"threshold_raise", [](auto& c) { c.threshold_raise = 0.9; }, Recovery::kRaiseThreshold},
      {"max_skipped_updates", [](auto& c) { c.max_skipped_updates = 0; }},
  };
  const auto trace = [](const DivergenceConfig& config) {
    Trouble trouble;
    trouble.setup.divergence = config;
    BowlRun run(trouble.options, trouble.setup, 0.1);
    std::string text;
    try {
      for (int i = 0; i < 80; ++i) {
        const Wrong wrong = i == 8 ? Wrong::kSpike : i == 60 ? Wrong::kBroken : Wrong::kNot;
        const PhaseOutcome outcome = run.machine.step(batch_of(run.bowl, i, run.noise, wrong));
        text += concat(name_of(outcome.phase), outcome.loss, outcome.event, "\n");
      }
    } catch (const Diverged& error) {
      text += error.what();
    }
    return text;
  };
  std::set<std::string> tried{"roll_back_rate",   "max_roll_backs",  // roll_back_test.cpp
                              "window",           "loss_sigmas",    "gradient_factor",
                              "vanishing_factor", "oscillation"};  // divergence_monitor_test.cpp
  for (const Flip& flip : flips) {
    Trouble trouble;
    DivergenceConfig config = trouble.setup.divergence;
    if (std::string(flip.field) == "on_caution") config.vanishing_factor = 0.9;
    config.on_warning = flip.first;
    const std::string before = trace(config);
    flip.change(config);
    EXPECT_NE(trace(config), before) << flip.field;
    tried.insert(flip.field);
  }
  DivergenceConfig config;
  DivergenceConfig::visit_fields(config, [&](const auto& field) {
    EXPECT_TRUE(tried.contains(field.name)) << field.name << " has no test that it acts";
  });
}

}  // namespace
}  // namespace hybrid_trainer
