#include "tests/support/simple_sets.h"

#include <gtest/gtest.h>

#include <array>
#include <cmath>
#include <numbers>

#include "src/data/synthetic/synthetic_set.h"
#include "src/data/synthetic/trident_set.h"
#include "tests/data/synthetic/measured_loss.h"

namespace hybrid_trainer {
namespace {

constexpr std::int64_t kCount = 20000;

class SimpleSets : public ::testing::Test {
 protected:
  Batch drawn(const SyntheticSet& set, std::int64_t examples = kCount) {
    Batch batch = set.empty_batch(examples, stream_);
    set.read(5, batch);
    return batch;
  }
  static void expect_best(const MeasuredLoss& measured, double best) {
    EXPECT_NEAR(measured.mean(), best, 4 * measured.deviation());
    EXPECT_LT(4 * measured.deviation(), 0.05 * best);
  }
  Stream stream_{MemoryPool::create("test")};
};

TEST_F(SimpleSets, SectorBestLossEqualsNoiseEntropy) {
  const SectorSet set(5, 0.2, 3);
  const Batch batch = drawn(set);
  MeasuredLoss measured;
  for (std::int64_t i = 0; i < kCount; ++i) {
    const float* x = batch.at("x").data<float>() + 2 * i;
    const double turn = std::atan2(x[1], x[0]) / (2 * std::numbers::pi);
    const auto sector = static_cast<std::int32_t>(5 * (turn < 0 ? turn + 1 : turn));
    measured.add(loss_of_label(batch.at("class").data<std::int32_t>()[i] == sector, 5, 0.2));
  }
  expect_best(measured, set.best_losses()[0].value);
}

TEST_F(SimpleSets, SurfaceBestLossEqualsNoiseVariance) {
  const SurfaceSet set(0.3, 3);
  const Batch batch = drawn(set);
  MeasuredLoss measured;
  for (std::int64_t i = 0; i < kCount; ++i) {
    const float* x = batch.at("x").data<float>() + 2 * i;
    const double away = batch.at("y").data<float>()[i] - std::sin(3 * x[0]) - 0.5 * x[1];
    measured.add(away * away);
  }
  expect_best(measured, set.best_losses()[0].value);
}

TEST_F(SimpleSets, ReversalBestLossEqualsNoiseEntropy) {
  const ReversalSet set(8, 6, 0.1, 3);
  const Batch batch = drawn(set);
  MeasuredLoss measured;
  for (std::int64_t i = 0; i < kCount; ++i) {
    const auto* source = batch.at("source").data<std::int32_t>() + 6 * i;
    const auto* before = batch.at("before").data<std::int32_t>() + 6 * i;
    const auto* targets = batch.at("targets").data<std::int32_t>() + 6 * i;
    EXPECT_EQ(before[0], 8);
    for (int n = 0; n < 6; ++n) {
      EXPECT_TRUE(n == 0 || before[n] == targets[n - 1]);
      measured.add(loss_of_label(targets[n] == source[5 - n], 8, 0.1));
    }
  }
  expect_best(measured, set.best_losses()[0].value);
}

double box_cost(double away, double beta) {
  away = std::abs(away);
  return away < beta ? away * away / (2 * beta) : away - beta / 2;
}

/// One plume per image, so its center and widths follow from the brightness. A beta as small as the
/// noise uses both branches of the loss.
TEST_F(SimpleSets, BoxBestLossEqualsNoiseCost) {
  const PlumeShape shape{.size = 64, .grid = 2, .plumes = 1, .missed = 0};
  const PlumeSet set(shape, 3);
  const Batch batch = drawn(set, 800);
  for (const double beta : {0.08, 1.0}) {
    MeasuredLoss measured;
    for (std::int64_t i = 0; i < batch.size(); ++i) {
      const float* image = batch.at("infrared").data<float>() + i * 64 * 64;
      double light = 0, x = 0, y = 0, xx = 0, yy = 0;
      for (int pixel = 0; pixel < 64 * 64; ++pixel) {
        const double across = (pixel % 64 + 0.5) / 32, down = (pixel / 64 + 0.5) / 32;
        light += image[pixel];
        x += image[pixel] * across, xx += image[pixel] * across * across;
        y += image[pixel] * down, yy += image[pixel] * down * down;
      }
      x /= light, y /= light;
      const auto cell = static_cast<std::int64_t>(y) * 2 + static_cast<std::int64_t>(x);
      const float* box = batch.at("plume_boxes").data<float>() + (i * 4 + cell) * kBoxNumbers;
      const std::array<double, kBoxNumbers> known{x - std::floor(x), y - std::floor(y),
                                                  4 * std::sqrt(xx / light - x * x),
                                                  4 * std::sqrt(yy / light - y * y)};
      double cost = 0;
      for (std::size_t n = 0; n < known.size(); ++n) cost += box_cost(box[n] - known[n], beta);
      measured.add(cost);
    }
    // The loss comes from the one cell of four with a plume, which is always labeled.
    const double boxes = best_plume_loss(shape, {.kind = 0, .beta = beta});
    EXPECT_NEAR(measured.mean() / 4, boxes, measured.deviation());
    EXPECT_LT(measured.deviation() / 4, 0.03 * boxes);
  }
}

TEST(LabelNoise, EntropyMatchesFairCoinAndDie) {
  EXPECT_NEAR(noisy_label_entropy(2, 0.5), std::log(2.0), 1e-15);
  EXPECT_NEAR(noisy_label_entropy(6, 5.0 / 6), std::log(6.0), 1e-15);
  EXPECT_EQ(noisy_label_entropy(4, 0), 0);
}

TEST(CoolingCurve, FitSeparatesSlowFromFastDespiteNoise) {
  for (const std::size_t samples : {3u, 16u, 100u})
    for (std::uint64_t i = 0; i < 2000; ++i) {
      std::vector<float> curve(samples);
      write_cooling_curve(curve, i % 2 == 1, {1, i, 0});
      EXPECT_EQ(fitted_cooling(curve) > 1.25, i % 2 == 1);
    }
}

}  // namespace
}  // namespace hybrid_trainer
