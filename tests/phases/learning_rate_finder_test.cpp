#include "phases/learning_rate_finder.h"

#include <gtest/gtest.h>

#include "tests/phases/quadratic_bowl.h"

namespace hybrid_trainer {
namespace {

PhaseMachine::Setup finding() {
  PhaseMachine::Setup setup;
  setup.phases.warmup_steps = 100;
  setup.phases.max_predict_steps = 0;
  setup.phases.forward_cost = 0.4;
  setup.learning_rate_finder = {.mode = "warmup", .interval = 4};
  return setup;
}

QuadraticBowl::Options at_rate(double learning_rate) {
  return {.learning_rate = learning_rate, .momentum = 0};
}

/// Loss of the bowl at weights + length·(weights − earlier).
double loss_further(const std::vector<float>& weights, const std::vector<float>& earlier,
                    double length) {
  double loss = 1;
  for (std::size_t i = 0; i < weights.size(); ++i) {
    const double change = static_cast<double>(weights[i]) - earlier[i];
    const double weight = weights[i] + length * change;
    loss += 0.5 * (0.1 + 0.3 * static_cast<double>(i)) * weight * weight;
  }
  return loss;
}

/// Reference rule, given the weights before and after k updates.
double lowest_position(const std::vector<float>& weights, const std::vector<float>& earlier,
                       double k) {
  double lowest = 0;
  for (double next = 1; next < 1000; next *= 2) {
    if (loss_further(weights, earlier, next / k) >= loss_further(weights, earlier, lowest / k))
      break;
    lowest = next;
  }
  return lowest;
}

TEST(LearningRateFinder, RaisesRateToLowestProbedLoss) {
  int raised = 0, at_most = 0, refused = 0;
  for (const double rate : {0.002, 0.03, 0.06, 0.1, 0.6}) {
    for (const std::int64_t k : {2, 4, 5}) {
      PhaseMachine::Setup setup = finding();
      setup.learning_rate_finder.interval = k;
      BowlRun run(at_rate(rate), setup, 0);
      const std::vector<float> earlier = run.bowl.flat();
      run.run(k);
      EXPECT_EQ(run.bowl.forwards, 0);
      const double lowest = lowest_position(run.bowl.flat(), earlier, static_cast<double>(k));
      const PhaseOutcome probed = run.step();
      const double factor = std::min(4.0, 1 + lowest / static_cast<double>(k));
      EXPECT_NEAR(*probed.rate_factor, factor, 1e-12) << rate << ' ' << k;
      EXPECT_EQ(run.bowl.rate_factor, *probed.rate_factor);
      // The finder does not probe beyond the position of the maximum factor.
      if (factor < 4) {
        EXPECT_EQ(*probed.probe_position, lowest);
      }
      raised += factor > 1 && factor < 4;
      at_most += factor == 4;
      refused += factor == 1;
    }
  }
  EXPECT_GT(raised, 0);
  EXPECT_GT(at_most, 0);
  EXPECT_GT(refused, 0);
}

TEST(LearningRateFinder, ProbesEveryIntervalAfterRampUp) {
  PhaseMachine::Setup setup = finding();
  setup.ramp_steps = 3;
  BowlRun run(at_rate(0.001), setup, 0);
  std::string probed;
  for (const PhaseOutcome& outcome : run.run(17)) probed += outcome.probe_position ? 'p' : '.';
  EXPECT_EQ(probed, ".......p...p...p.");
}

TEST(LearningRateFinder, ChargesForwardsOnPartOfBatch) {
  PhaseMachine::Setup setup = finding();
  BowlRun run(at_rate(0.001), setup, 0);
  run.run(4);
  const PhaseOutcome probed = run.step();  // at 0, 1, 2, 4, 8, 16: 1 + 16/4 exceeds 4
  EXPECT_EQ(run.bowl.forwards, 6);
  EXPECT_NEAR(*probed.probe_cost, 6 * 0.4, 1e-12);  // the bowl's batches have one example
  EXPECT_NEAR(probed.cost, 1 + 6 * 0.4, 1e-12);
  const Tensor centres = Tensor::zeros({6, QuadraticBowl::kWeights}, DType::kF32, MemoryKind::kData,
                                       run.bowl.stream());
  for (const auto& [share, examples] : {std::pair{0.25, 2}, {0.5, 3}, {1.0, 6}}) {
    setup.learning_rate_finder.batch_share = share;
    BowlRun other(at_rate(0.001), setup, 0);
    for (int i = 0; i < 5; ++i)
      other.machine.step(Batch({{"centres", centres}}, QuadraticBowl::kWeights));
    ASSERT_FALSE(other.bowl.probed_examples.empty());
    EXPECT_EQ(other.bowl.probed_examples.back(), examples);
  }
}

TEST(LearningRateFinder, EndsUnchangedAfterConsecutiveRefusals) {
  PhaseMachine::Setup off = finding();
  off.learning_rate_finder.mode = "off";
  BowlRun plain(at_rate(0.8), off, 0), run(at_rate(0.8), finding(), 0);
  plain.run(30);
  const std::vector<PhaseOutcome> outcomes = run.run(30);
  EXPECT_EQ(run.bowl.flat(), plain.bowl.flat());
  EXPECT_EQ(run.bowl.forwards, 4);  // two probes, at 0 and 1 each
  EXPECT_NE(outcomes[4].event.find("rate unchanged"), std::string::npos) << outcomes[4].event;
  EXPECT_EQ(outcomes[4].event.find("found"), std::string::npos);
  EXPECT_NE(outcomes[8].event.find("found after 2 probes"), std::string::npos) << outcomes[8].event;
  EXPECT_FALSE(plain.step().rate_factor);
  EXPECT_TRUE(run.bowl.snapshot().empty());
}

TEST(LearningRateFinder, WarnsIfWarmupIsTooShort) {
  PhaseMachine::Setup setup = finding();
  setup.phases.warmup_steps = 10;
  BowlRun run(at_rate(1e-5), setup, 0);
  const PhaseOutcome first_full = run.run(11).back();
  EXPECT_TRUE(first_full.warns);
  for (const char* words : {"16 times the configured rate after 2 probes", "phases.warmup_steps"})
    EXPECT_NE(first_full.event.find(words), std::string::npos) << first_full.event;
  const std::int64_t forwards = run.bowl.forwards;
  EXPECT_EQ(*run.run(20).back().rate_factor, 16);
  EXPECT_EQ(run.bowl.forwards, forwards);
}

TEST(LearningRateFinder, StopsWhenProbeExceedsMemory) {
  BowlRun run(at_rate(0.001), finding(), 0), plain(at_rate(0.001), finding(), 0);
  run.bowl.fails_at_forward = 3;
  plain.bowl.is_full = true;
  const std::vector<PhaseOutcome> outcomes = run.run(30);
  EXPECT_TRUE(outcomes[4].warns);
  EXPECT_NE(outcomes[4].event.find("the learning-rate finder stops"), std::string::npos);
  EXPECT_EQ(run.bowl.forwards, 4);
  EXPECT_TRUE(plain.run(30).front().warns);
  EXPECT_EQ(run.bowl.flat(), plain.bowl.flat());
  EXPECT_EQ(plain.bowl.forwards, 0);
}

TEST(LearningRateFinder, OutOfMemoryProbeEndsMultiRankRun) {
  BowlRun run(at_rate(0.001), finding(), 0);
  run.bowl.fails_at_forward = 3;
  run.bowl.is_several = true;
  try {
    run.run(30);
    FAIL();
  } catch (const OutOfMemory& error) {
    EXPECT_NE(std::string(error.what()).find("learning_rate_finder.mode=off"), std::string::npos);
  }
}

TEST(LearningRateFinder, SkippedUpdateDelaysProbe) {
  BowlRun run(at_rate(0.001), finding(), 0);
  run.run(2);
  run.machine.step(run.bowl.broken_batch());
  EXPECT_FALSE(run.run(2).back().probe_position);
  EXPECT_TRUE(run.step().probe_position);
}

}  // namespace
}  // namespace hybrid_trainer
