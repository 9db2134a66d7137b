#include "phases/divergence.h"

#include <gtest/gtest.h>

#include <cmath>
#include <functional>
#include <limits>

#include "hybrid_trainer/core/random.h"

namespace hybrid_trainer {
namespace {

constexpr double kNaN = std::numeric_limits<double>::quiet_NaN();
constexpr double kInfinity = std::numeric_limits<double>::infinity();

double normal(int i) { return random_normal({3, 0, 0}, static_cast<std::uint64_t>(i)); }

DivergenceMonitor after(int count, const std::function<double(int)>& loss,
                        const DivergenceConfig& config = {}) {
  DivergenceMonitor monitor(config);
  for (int i = 0; i < count; ++i) monitor.observe({loss(i), 2.0});
  return monitor;
}

double noisy(int i) { return 3.0 + 0.1 * normal(i); }

TEST(DivergenceMonitor, AcceptsNoise) {
  DivergenceMonitor monitor({});
  for (int i = 0; i < 500; ++i) {
    const GradientMeasurement measured{noisy(i), 2.0 * std::exp(0.3 * normal(1000 + i))};
    EXPECT_EQ(monitor.assess(measured).reason, "") << "update " << i;
    monitor.observe(measured);
  }
}

TEST(DivergenceMonitor, AcceptsFallingLoss) {
  const auto falling = [](int i) { return 1 + 3 * std::exp(-0.02 * i) + 0.02 * normal(i); };
  DivergenceMonitor monitor({});
  for (int i = 0; i < 300; ++i) {
    EXPECT_TRUE(monitor.assess({falling(i), 1}).normal()) << "update " << i;
    monitor.observe({falling(i), 1});
  }
}

TEST(DivergenceMonitor, AcceptsLossAtOrBelowPrediction) {
  const DivergenceMonitor monitor = after(100, noisy);
  EXPECT_TRUE(monitor.assess_loss(2.5, 2.5).normal());
  EXPECT_TRUE(monitor.assess_loss(2.0, 2.5).normal()) << "a loss below the prediction is normal";
}

TEST(DivergenceMonitor, DetectsHighLoss) {
  const DivergenceMonitor monitor = after(100, noisy);
  const Verdict verdict = monitor.assess({3.0 + 1.0, 2.0});
  EXPECT_EQ(verdict.signal, Signal::kLoss);
  EXPECT_NE(verdict.reason.find("standard deviations above"), std::string::npos);
  EXPECT_EQ(monitor.assess_loss(3.0, 2.0).signal, Signal::kLoss);
}

TEST(DivergenceMonitor, LimitIsInSampleStandardDeviations) {
  // Sample 1, 2, 3, 4: mean 2.5, squared deviations 5, 3 degrees of freedom.
  const DivergenceMonitor monitor = after(4, [](int i) { return 1.0 + i; }, {.window = 4});
  const double limit = 2.5 + 4 * std::sqrt(5.0 / 3);
  EXPECT_EQ(monitor.assess({limit - 1e-6, 2}).signal, Signal::kNone);
  EXPECT_EQ(monitor.assess({limit + 1e-6, 2}).signal, Signal::kLoss);
}

TEST(DivergenceMonitor, DetectsExplodingAndVanishingGradients) {
  const DivergenceMonitor monitor = after(100, noisy);
  EXPECT_EQ(monitor.assess({3.0, 21.0}).signal, Signal::kExplosion);
  EXPECT_EQ(monitor.assess({3.0, 19.0}).signal, Signal::kNone);
  EXPECT_EQ(monitor.assess({3.0, 1e-4}).signal, Signal::kVanishing);
  EXPECT_EQ(monitor.assess({3.0, 3e-4}).signal, Signal::kNone);
}

TEST(DivergenceMonitor, ReportsExplosionBeforeHighLoss) {
  const DivergenceMonitor monitor = after(32, noisy);
  EXPECT_EQ(monitor.assess({1000.0, 2000.0}).signal, Signal::kExplosion);
  EXPECT_EQ(monitor.assess({1000.0, 2.0}).signal, Signal::kLoss);
}

TEST(DivergenceMonitor, DetectsOscillatingLoss) {
  const auto alternating = [](int i) { return 3 + (i % 2 ? 0.5 : -0.5) + 0.05 * normal(i); };
  EXPECT_EQ(after(100, alternating).assess({3, 2}).signal, Signal::kOscillation);
}

TEST(DivergenceMonitor, HandledOscillationRestartsItsWindow) {
  const auto alternating = [](int i) { return 3 + (i % 2 ? 0.5 : -0.5); };
  const DivergenceConfig config{.window = 10};
  DivergenceMonitor monitor = after(30, alternating, config);
  for (int round = 0; round < 2; ++round) {
    ASSERT_EQ(monitor.assess({3, 2}).signal, Signal::kOscillation);
    monitor.mark_oscillation_handled();
    for (int i = 0; i < config.window; ++i) {
      EXPECT_TRUE(monitor.assess({3, 2}).normal()) << i;
      monitor.observe({alternating(i), 2});
      State state;
      monitor.save(state);
      monitor = DivergenceMonitor(config);
      monitor.load(state);
    }
  }
}

TEST(DivergenceMonitor, DetectsNonFiniteFromFirstStep) {
  const DivergenceMonitor fresh{DivergenceConfig{}};
  EXPECT_EQ(fresh.assess({kNaN, 1}).signal, Signal::kNotFinite);
  EXPECT_EQ(fresh.assess({1, kInfinity}).signal, Signal::kNotFinite);
  EXPECT_EQ(fresh.assess_loss(kInfinity, 1).signal, Signal::kNotFinite);
  EXPECT_TRUE(fresh.assess({1e6, 1e6}).normal()) << "no values to compare with yet";
}

TEST(DivergenceMonitor, UsesConfiguredThresholds) {
  const auto verdict = [](const std::function<void(DivergenceConfig&)>& change,
                          const GradientMeasurement& measured, const auto& series) {
    DivergenceConfig config;
    change(config);
    return after(40, series, config).assess(measured).signal;
  };
  EXPECT_EQ(verdict([](auto& c) { c.loss_sigmas = 20; }, {4.0, 2}, noisy), Signal::kNone);
  EXPECT_EQ(verdict([](auto& c) { c.gradient_factor = 2; }, {3, 5}, noisy), Signal::kExplosion);
  EXPECT_EQ(verdict([](auto& c) { c.vanishing_factor = 0.5; }, {3, 0.9}, noisy),
            Signal::kVanishing);
  EXPECT_EQ(verdict([](auto& c) { c.window = 50; }, {9, 2}, noisy), Signal::kNone);
  const auto alternating = [](int i) { return 3 + (i % 2 ? 0.5 : -0.5); };
  EXPECT_EQ(verdict([](auto& c) { c.oscillation = 1; }, {3, 2}, alternating), Signal::kNone);
}

/// Uses the sample deviation of a few losses: 1 for {1, 1, 1, 3}, whose mean is 1.5.
TEST(DivergenceMonitor, AssessLossUsesSampleDeviation) {
  DivergenceConfig config;
  config.window = 4;
  config.loss_sigmas = 2;
  const DivergenceMonitor monitor = after(
      4, [](int i) { return i == 3 ? 3.0 : 1.0; }, config);
  EXPECT_TRUE(monitor.assess_loss(1.5 + 1.9, 1.5).normal());
  EXPECT_EQ(monitor.assess_loss(1.5 + 2.1, 1.5).signal, Signal::kLoss);
}

TEST(DivergenceMonitor, RestoresSavedState) {
  const DivergenceMonitor monitor = after(50, noisy);
  State state;
  monitor.save(state);
  DivergenceMonitor loaded({});
  loaded.load(state);
  EXPECT_EQ(loaded.mean_loss(), monitor.mean_loss());
  EXPECT_EQ(loaded.assess({3.9, 2}).reason, monitor.assess({3.9, 2}).reason);
}

}  // namespace
}  // namespace hybrid_trainer
