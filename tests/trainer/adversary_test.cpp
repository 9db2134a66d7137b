#include <gtest/gtest.h>

#include "tests/support/adversaries.h"

namespace hybrid_trainer::testing {
namespace {

/// One seed's runs diverge by chance once a jump is kept; adversary_benchmark has means over seeds.
constexpr double kMaxOfOneSeed = 1.05;

class Adversaries : public ::testing::TestWithParam<const char*> {};

TEST_P(Adversaries, RevertedRunMatchesPlainTraining) {
  HybridTrainerConfig config = adversary_config(1, 100);
  config.phases.skip_backward.horizon = GetParam();
  config.phases.skip_backward.trial_share = 0.5;  // allows several probes in a short run
  const AdversaryResult plain = train_with(config, {});
  EXPECT_GT(plain.weights.size(), 90'000u);
  int reverted = 0;
  for (const AdversaryRow& row : adversaries()) {
    const AdversaryResult result = train_with(config, row.make(1));
    EXPECT_EQ(result.predictions.made >= 2, row.is_finite) << row.name;
    EXPECT_EQ(result.predictions.made > 0, row.is_finite) << row.name;
    EXPECT_LT(result.loss, kMaxOfOneSeed * plain.loss) << row.name;
    if (!result.kept_none()) continue;
    ++reverted;
    EXPECT_TRUE(result.weights == plain.weights) << row.name;
  }
  EXPECT_GE(reverted, 2);
}

/// Repeating reverted steps needs no more memory than the steps, so micro-batches are not halved.
TEST(Adversary, RevertedRunInSameBudgetMatchesPlainTraining) {
  HybridTrainerConfig config = adversary_config(1, 100);
  config.phases.skip_backward.trial_share = 0.5;
  auto& precision = config.mixed_precision;
  precision.warmup = precision.full = precision.predict = precision.correct = "fp32";
  config.phases.skip_backward.max_shrinks = 0;
  config.data.batch_size = 2;  // a step's batch is large relative to a micro-batch's activations
  config.gradient_accumulation.micro_batches = 4;
  const AdversaryResult plain = train_with(config, {});
  const std::size_t budget = plain.live_bytes;  // excludes freed memory kept for reuse
  int reverted = 0;
  for (const AdversaryRow& row : adversaries()) {
    const AdversaryResult result = train_with(config, row.make(1), budget);
    EXPECT_LE(result.device_bytes, budget) << row.name;
    if (!result.kept_none() || !row.is_finite) continue;
    ++reverted;
    EXPECT_GE(result.predictions.made, 2) << row.name;
    EXPECT_TRUE(result.weights == plain.weights) << row.name;
  }
  EXPECT_GE(reverted, 1);
}

TEST_P(Adversaries, OverheadIsAtMostOnePercentByDefault) {
  constexpr std::int64_t kSteps = 1000;
  HybridTrainerConfig config = adversary_config(2, kSteps);
  config.phases.skip_backward.horizon = GetParam();
  const AdversaryResult plain = train_with(config, {});
  EXPECT_EQ(plain.overhead, 0);
  for (const AdversaryRow& row : adversaries()) {
    const AdversaryResult result = train_with(config, row.make(2));
    EXPECT_EQ(result.predictions.made > 0, row.is_finite) << row.name;
    EXPECT_LE(result.overhead, 0.01) << row.name;
    EXPECT_EQ(result.planning > 0, config.phases.skip_backward.horizon == "model_based")
        << row.name;
    EXPECT_LT(result.loss, kMaxOfOneSeed * plain.loss) << row.name;
  }
}

INSTANTIATE_TEST_SUITE_P(EachHorizon, Adversaries, ::testing::Values("measured", "model_based"),
                         [](const auto& test) { return std::string(test.param); });

}  // namespace
}  // namespace hybrid_trainer::testing
