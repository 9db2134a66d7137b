#include "src/data/synthetic/trident_set.h"

#include <gtest/gtest.h>

#include <array>
#include <cmath>
#include <cstring>
#include <numbers>
#include <span>

#include "hybrid_trainer/core/batch.h"
#include "hybrid_trainer/core/error.h"
#include "tests/data/synthetic/measured_loss.h"

// Decodes each sensor's tensor arithmetically, like an ideal model, and predicts the labels. The
// measured losses must equal those that the set declares best.
namespace hybrid_trainer {
namespace {

constexpr std::int64_t kMeasuredExamples = 4000;

template <class T>
std::span<const T> part(const Batch& batch, const char* name, std::int64_t example) {
  const Tensor& all = batch.at(name);
  const std::int64_t count = all.elements() / all.size(0);
  return {all.data<T>() + example * count, static_cast<std::size_t>(count)};
}

/// Direction in which the center of the brightening pixels moves.
std::int64_t motion_of(std::span<const float> video, const VideoShape& shape) {
  const auto frame = static_cast<std::size_t>(shape.height * shape.width * shape.channels);
  double x = 0, y = 0;
  for (std::size_t i = 0; i < frame; ++i) {
    const double grown = video[video.size() - frame + i] - video[i];
    const auto pixel = static_cast<std::int64_t>(i) / shape.channels;
    x += grown * static_cast<double>(pixel % shape.width);
    y += grown * static_cast<double>(pixel / shape.width);
  }
  if (std::abs(x) > std::abs(y)) return x > 0 ? 0 : 1;
  return y > 0 ? 2 : 3;
}

std::int64_t swing_of(std::span<const float> values, std::int64_t channels) {
  const auto strength = [&](double times) {
    std::array<double, 2> sums{};
    const auto steps = static_cast<std::int64_t>(values.size()) / channels;
    for (std::int64_t t = 0; t < steps; ++t) {
      const double angle =
          2 * std::numbers::pi * times * static_cast<double>(t) / static_cast<double>(steps);
      const double value = values[static_cast<std::size_t>(t * channels)];
      sums[0] += value * std::cos(angle);
      sums[1] += value * std::sin(angle);
    }
    return sums[0] * sums[0] + sums[1] * sums[1];
  };
  return strength(5) > strength(2) ? 1 : 0;
}

std::int64_t brightness_of(std::span<const float> image, std::int64_t size) {
  const auto channels = static_cast<std::int64_t>(image.size()) / (size * size);
  double right = 0, down = 0;
  for (std::size_t i = 0; i < image.size(); ++i) {
    const auto pixel = static_cast<std::int64_t>(i) / channels;
    right += image[i] * static_cast<double>(2 * (pixel % size) - size + 1);
    down += image[i] * static_cast<double>(2 * (pixel / size) - size + 1);
  }
  return down > right ? 1 : 0;
}

/// Derives the kind from the brightness of the two plumes: a Gaussian's is 2π·σx·σy.
std::int64_t plume_kind_of(std::span<const float> image, const PlumeShape& shape) {
  double light = 0;
  for (const float pixel : image) light += pixel;
  const double cell = static_cast<double>(shape.size) / static_cast<double>(shape.grid);
  const double deviations =
      light / (2 * std::numbers::pi * static_cast<double>(shape.plumes)) / (cell * cell);
  return deviations > 0.15 * 0.15 ? 1 : 0;
}

std::int64_t region_of(std::span<const float> geo) { return (geo[0] > 0) + 2 * (geo[1] > 0); }

struct Losses {
  MeasuredLoss events, plumes, cooling;
};

void add_events(Losses& losses, const Batch& batch, std::int64_t i, const TridentShape& shape) {
  const std::int64_t motion = motion_of(part<float>(batch, "video", i), shape.video);
  const std::int64_t swing =
      swing_of(part<float>(batch, "kinematics", i), shape.kinematic_channels);
  const std::int64_t fast = fitted_cooling(part<float>(batch, "cooling", i)) > 1.25 ? 1 : 0;
  const std::int64_t down = brightness_of(part<float>(batch, "visible", i), shape.plumes.size);
  const std::int64_t kind = plume_kind_of(part<float>(batch, "infrared", i), shape.plumes);
  const auto before = part<std::int32_t>(batch, "event_tokens", i),
             said = part<std::int32_t>(batch, "event_targets", i);
  EXPECT_EQ(before[0], TridentSet::kStart);
  for (std::size_t n = 0; n < said.size(); ++n) {
    EXPECT_TRUE(n == 0 || before[n] == said[n - 1]);
    const std::array<std::int64_t, 4> events{
        2 * motion + swing, 2 * region_of(part<float>(batch, "geo", i)) + kind,
        4 * fast + 2 * down + swing, n >= 3 ? before[n - 2] : 0};
    losses.events.add(
        loss_of_label(said[n] == events[n % 4], TridentSet::kEventKinds, shape.event_noise));
  }
}

/// Loss of one cell, with a plume if the image is bright there. Another test covers the boxes.
double loss_of_cell(bool plume, std::int32_t noted, std::int64_t kind, const PlumeShape& shape) {
  if (!plume) return 0;
  const double presence = loss_of_label(noted != kNoTarget, 2, shape.missed);
  if (noted == kNoTarget) return presence;
  return presence + loss_of_label(noted == kind, kPlumeKinds, shape.kind_noise);
}

void add_plumes(Losses& losses, const Batch& batch, std::int64_t i, const PlumeShape& shape) {
  const auto image = part<float>(batch, "infrared", i);
  const auto kinds = part<std::int32_t>(batch, "plume_kinds", i);
  const std::int64_t kind = plume_kind_of(image, shape), cell = shape.size / shape.grid;
  for (std::int64_t c = 0; c < shape.cells(); ++c) {
    double most = 0;
    for (std::int64_t pixel = 0; pixel < cell * cell; ++pixel) {
      const std::int64_t row = c / shape.grid * cell + pixel / cell,
                         column = c % shape.grid * cell + pixel % cell;
      most = std::max<double>(most, image[static_cast<std::size_t>(row * shape.size + column)]);
    }
    const std::int32_t noted = kinds[static_cast<std::size_t>(c)];
    EXPECT_TRUE(most > 0.55 || noted == kNoTarget);
    losses.plumes.add(loss_of_cell(most > 0.55, noted, kind, shape));
  }
}

TEST(TridentSet, IdealModelReachesBestLosses) {
  const Stream stream(MemoryPool::create("test"));
  const TridentShape shape;
  const TridentSet set(shape, 7);
  const Batch batch = set.empty_batch(100, stream);
  Losses losses;
  for (std::int64_t first = 0; first < kMeasuredExamples; first += batch.size()) {
    set.read(first, batch);
    for (std::int64_t i = 0; i < batch.size(); ++i) {
      add_events(losses, batch, i, shape);
      add_plumes(losses, batch, i, shape.plumes);
      const double away = part<float>(batch, "cooling_constant", i)[0] -
                          fitted_cooling(part<float>(batch, "cooling", i));
      losses.cooling.add(away * away);
    }
  }
  const std::vector<BestLoss> best = set.best_losses();
  const auto expect_best = [&](const MeasuredLoss& measured, double wanted, const char* name) {
    EXPECT_NEAR(measured.mean(), wanted, 4 * measured.deviation()) << name;
    EXPECT_LT(4 * measured.deviation(), 0.1 * wanted) << name;
  };
  ASSERT_EQ(best[0].name, "events.loss");
  expect_best(losses.events, best[0].value, "events");
  expect_best(losses.plumes, best_plume_loss(shape.plumes, {.box = 0}), "plumes");
  ASSERT_EQ(best[2].name, "constant.loss");
  expect_best(losses.cooling, best[2].value, "cooling");
}

/// A subset of the sensors leaves the events ambiguous, so every sensor is needed.
TEST(TridentSet, MotionAloneLeavesEventsAmbiguous) {
  const Stream stream(MemoryPool::create("test"));
  const TridentSet set({}, 7);
  const Batch batch = set.empty_batch(2000, stream);
  set.read(0, batch);
  // With the motion alone, two events remain, equally likely.
  std::int64_t right = 0;
  for (std::int64_t i = 0; i < batch.size(); ++i)
    right += part<std::int32_t>(batch, "event_targets", i)[0] / 2 ==
                     motion_of(part<float>(batch, "video", i), {})
                 ? 1
                 : 0;
  EXPECT_NEAR(static_cast<double>(right) / 2000, 0.8 + 0.2 / 7, 0.04);
  std::array<int, 2> swings{};
  for (std::int64_t i = 0; i < batch.size(); ++i)
    ++swings[static_cast<std::size_t>(part<std::int32_t>(batch, "event_targets", i)[0] % 2)];
  EXPECT_NEAR(swings[0], 1000, 100);
}

TEST(TridentSet, ExampleDependsOnlyOnSeedAndIndex) {
  const Stream stream(MemoryPool::create("test"));
  const TridentSet set({}, 7), other({}, 8);
  const Batch many = set.empty_batch(6, stream), few = set.empty_batch(2, stream);
  set.read(40, many);
  set.read(43, few);
  const Batch same = many.examples(3, 5);
  const auto equal = [&](std::size_t t) {
    const Tensor &a = few.tensors()[t].tensor, &b = same.tensors()[t].tensor;
    return std::memcmp(a.raw(), b.raw(), a.bytes()) == 0;
  };
  for (std::size_t t = 0; t < few.tensors().size(); ++t)
    EXPECT_TRUE(equal(t)) << few.tensors()[t].name;
  other.read(43, few);
  for (std::size_t t = 0; t < few.tensors().size(); ++t)
    EXPECT_FALSE(equal(t)) << few.tensors()[t].name;
}

TEST(TridentSet, RejectsInvalidShape) {
  TridentShape shape;
  shape.plumes.size = 30;
  shape.geo_numbers = 1;
  try {
    TridentSet set(shape, 1);
    FAIL();
  } catch (const ConfigError& error) {
    EXPECT_NE(std::string(error.what()).find("30 pixels for 4 cells"), std::string::npos)
        << error.what();
    EXPECT_NE(std::string(error.what()).find("geographic numbers: got 1"), std::string::npos);
  }
}

}  // namespace
}  // namespace hybrid_trainer
