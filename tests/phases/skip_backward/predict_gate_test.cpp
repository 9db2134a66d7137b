#include "phases/skip_backward/prediction.h"

#include <gtest/gtest.h>

#include "hybrid_trainer/core/random.h"

namespace hybrid_trainer {
namespace {

PhaseConfig config_with(double trial_share) {
  PhaseConfig config;
  config.full_steps = 20;
  config.skip_backward.trial_share = trial_share;
  config.skip_backward.trial_steps = 3;
  return config;
}

/// An artificial run: the loss falls by `slope` per Full step, with noise. An extrapolation lowers
/// it by `gain` immediately, of which `kept` remains, and costs as much as `cost` Full steps.
struct MadeUpRun {
  PredictGate gate;
  double slope = 0.01, noise = 0, cost = 3;
  double loss = 5;
  int drawn = 0;

  explicit MadeUpRun(const PhaseConfig& config) : gate(config) {}
  void full(int count) {
    for (int i = 0; i < count; ++i) {
      gate.add_step();
      const double draw = random_normal({1, 0, 0}, static_cast<std::uint64_t>(drawn++));
      gate.add_full_loss(loss + noise * draw);
      loss -= slope;
    }
  }
  void extrapolation(double gain, double kept, Decision decision = Decision::kAccepted) {
    gate.begin_extrapolation(gate.allowance());
    gate.add_step();
    gate.finish_extrapolation({.cost = cost, .decision = decision, .paired_drop = gain});
    loss -= gain * kept;
  }
};

TEST(PredictGate, AllowsOneProbeWithoutEvidence) {
  MadeUpRun run(config_with(0));
  run.full(20);
  EXPECT_TRUE(run.gate.allowance().open);
  EXPECT_TRUE(run.gate.allowance().trial);
  EXPECT_EQ(run.gate.allowance().steps, 3);
  run.extrapolation(0, 0);
  run.full(500);
  EXPECT_FALSE(run.gate.allowance().open) << "no budget for probes";
}

TEST(PredictGate, OpensWhenJumpsSaveMoreThanTheyCost) {
  MadeUpRun run(config_with(0));
  run.full(20);
  run.extrapolation(0.05, 1.0);  // progress of five Full steps at the cost of three
  run.full(20);
  EXPECT_NEAR(run.gate.advantage(), 0.02, 1e-9);
  EXPECT_TRUE(run.gate.allowance().open);
  EXPECT_FALSE(run.gate.allowance().trial);
}

TEST(PredictGate, StaysClosedWhenJumpsCostMore) {
  MadeUpRun run(config_with(0));
  run.full(20);
  run.extrapolation(0.02, 1.0);
  run.full(20);
  EXPECT_NEAR(run.gate.advantage(), -0.01, 1e-9);
  EXPECT_FALSE(run.gate.allowance().open);
}

TEST(PredictGate, IgnoresGainThatIsNotKept) {
  MadeUpRun run(config_with(0));
  run.full(20);
  run.extrapolation(0.5, 0.0);  // a large gain in the probe, nothing kept
  run.full(20);
  EXPECT_NEAR(run.gate.advantage(), -0.03, 1e-9);
}

TEST(PredictGate, CreditIsLimitedToProbedGain) {
  MadeUpRun run(config_with(0));
  run.full(20);
  run.extrapolation(0.0, 0.0);
  run.loss -= 0.5;  // simulates a lower learning rate
  run.full(20);
  EXPECT_NEAR(run.gate.advantage(), -0.03, 1e-9);
}

TEST(PredictGate, ChargesRevertedJumps) {
  MadeUpRun run(config_with(0));
  run.full(20);
  run.extrapolation(0.05, 1.0);
  run.full(20);
  const double before = run.gate.advantage();
  run.extrapolation(0, 0, Decision::kReverted);
  run.full(20);
  EXPECT_NEAR(run.gate.advantage(), 0.9 * before - 0.03, 1e-9);
}

TEST(PredictGate, ClosesAfterRejectionsForAnyFullLength) {
  for (const std::int64_t full_steps : {1, 2, 3}) {
    PhaseConfig config = config_with(0);
    config.full_steps = full_steps;
    MadeUpRun run(config);
    const auto be_ready = [&] {
      for (int i = 0; i < full_steps || !run.gate.ready(); ++i) run.full(1);
    };
    be_ready();
    run.extrapolation(0.05, 1.0);
    be_ready();
    EXPECT_GT(run.gate.advantage(), 0);
    for (int i = 0; i < 3; ++i) {
      run.extrapolation(0, 0, Decision::kReverted);
      be_ready();
    }
    EXPECT_LT(run.gate.advantage(), 0) << "full_steps " << full_steps;
  }
}

TEST(PredictGate, RequiresEvidenceBeyondNoise) {
  const auto advantage = [](double sigmas) {
    PhaseConfig config = config_with(0);
    config.skip_backward.evidence_sigmas = sigmas;
    MadeUpRun run(config);
    run.noise = 0.05;
    run.full(60);
    run.extrapolation(0.08, 1.0);
    run.full(20);
    return run.gate.advantage();
  };
  EXPECT_GT(advantage(0), advantage(2) + 0.02);
  EXPECT_LT(advantage(2), 0);
}

TEST(PredictGate, SeldomOpensByChance) {
  int opened = 0;
  for (int start = 0; start < 200; ++start) {
    MadeUpRun run(config_with(1));
    run.drawn = 1000 * start;
    run.noise = 0.05;
    run.slope = 0.0005;
    for (int i = 0; i < 5; ++i) {
      run.full(100);
      run.extrapolation(0.003, 0.0);
    }
    run.full(20);
    opened += run.gate.advantage() > 0;
  }
  EXPECT_LE(opened, 10);
}

TEST(PredictGate, KeepsProbesWithinTrialShare) {
  MadeUpRun run(config_with(0.02));
  int steps = 0, trial_steps = 0;
  for (; steps < 3000; ++steps) {
    run.full(1);
    if (!run.gate.allowance().open) continue;
    trial_steps += static_cast<int>(run.gate.allowance().steps);
    run.extrapolation(0, 0, Decision::kReverted);
  }
  EXPECT_LE(trial_steps, 0.02 * steps + 3);
  EXPECT_GE(trial_steps, 0.02 * steps - 3);
}

TEST(PredictGate, AllowsLongerPhasesWhileAccepted) {
  MadeUpRun run(config_with(0));
  run.slope = 0.001;
  run.full(20);
  std::vector<std::int64_t> lengths;
  for (int i = 0; i < 4; ++i) {
    run.extrapolation(0.05, 1.0);
    run.full(20);
    lengths.push_back(run.gate.allowance().steps);
    EXPECT_FALSE(run.gate.allowance().trial);
  }
  EXPECT_EQ(lengths, (std::vector<std::int64_t>{6, 12, 15, 15}));
  run.extrapolation(0, 0, Decision::kReverted);
  run.full(20);
  EXPECT_EQ(run.gate.allowance().steps, 7);
}

TEST(PredictGate, StepLengthFollowsKeptFraction) {
  MadeUpRun run(config_with(0));
  run.full(20);
  EXPECT_EQ(run.gate.allowance().step_length, 1);
  const auto after = [&](Decision decision, double kept) {
    run.gate.begin_extrapolation(run.gate.allowance());
    run.gate.finish_extrapolation({.cost = 1, .decision = decision, .kept_fraction = kept});
    return run.gate.allowance().step_length;
  };
  EXPECT_EQ(after(Decision::kShrunk, 0.25), 0.25);
  EXPECT_EQ(after(Decision::kReverted, 0), 0.125);
  EXPECT_EQ(after(Decision::kAccepted, 1), 0.25);
  for (int i = 0; i < 9; ++i) after(Decision::kReverted, 0);
  EXPECT_EQ(run.gate.allowance().step_length, 0.0625);
}

TEST(PredictGate, HalfOfProbesIgnoreConfidence) {
  MadeUpRun run(config_with(0.02));
  run.full(100);
  EXPECT_TRUE(run.gate.allowance().overdue) << "the first probe";
  run.extrapolation(0, 0, Decision::kReverted);
  std::vector<std::int64_t> open, overdue;
  for (std::int64_t step = 102; step < 700; ++step) {
    run.full(1);
    if (run.gate.allowance().open) open.push_back(step);
    if (run.gate.allowance().overdue) overdue.push_back(step);
  }
  EXPECT_EQ(open.front(), 300);     // 6 steps at 2 %
  EXPECT_EQ(overdue.front(), 600);  // 6 steps at 1 %
}

TEST(PredictGate, RestoresSavedState) {
  MadeUpRun run(config_with(0.1));
  run.noise = 0.05;
  run.full(30);
  run.extrapolation(0.05, 1.0);
  run.full(12);
  State state;
  run.gate.save(state);
  MadeUpRun loaded(config_with(0.1));
  loaded.gate.load(state);
  EXPECT_EQ(loaded.gate.advantage(), run.gate.advantage());
  EXPECT_EQ(loaded.gate.allowance().open, run.gate.allowance().open);
}

}  // namespace
}  // namespace hybrid_trainer
