#include "src/data/synthetic/plume_scene.h"

#include <cmath>
#include <numbers>

#include "hybrid_trainer/core/batch.h"
#include "src/core/narrow.h"
#include "src/data/synthetic/synthetic_set.h"

namespace hybrid_trainer {

namespace {

/// A Gaussian plume, in units of cells. Its box is four standard deviations wide.
struct Plume {
  std::int64_t cell;
  float x, y, deviation_x, deviation_y;
  std::array<float, kBoxNumbers> box() const { return {x, y, 4 * deviation_x, 4 * deviation_y}; }
};

Plume drawn_plume(PlumeKind kind, std::int64_t cell, RandomDraws& draws) {
  const float deviation = kind == PlumeKind::kNarrow ? 0.11f : 0.2f;
  Plume plume{cell, draws.between(0.3f, 0.7f), draws.between(0.3f, 0.7f), 0, 0};
  plume.deviation_x = deviation * draws.between(0.85f, 1.15f);
  plume.deviation_y = deviation * draws.between(0.85f, 1.15f);
  return plume;
}

void add_plume(std::span<float> image, const PlumeShape& shape, const Plume& plume) {
  const auto cell = static_cast<float>(shape.size) / static_cast<float>(shape.grid);
  const float x = static_cast<float>(plume.cell % shape.grid) + plume.x;
  const float y = static_cast<float>(plume.cell / shape.grid) + plume.y;
  const auto profile = [&](std::int64_t pixel, float middle, float deviation) {
    const float away = ((static_cast<float>(pixel) + 0.5f) / cell - middle) / deviation;
    return std::exp(-0.5f * away * away);
  };
  for (std::int64_t row = 0; row < shape.size; ++row) {
    const float height = profile(row, y, plume.deviation_y);
    if (height < 1e-6f) continue;
    for (std::int64_t column = 0; column < shape.size; ++column)
      image[static_cast<std::size_t>(row * shape.size + column)] +=
          height * profile(column, x, plume.deviation_x);
  }
}

void note(const PlumeScene& scene, const PlumeShape& shape, PlumeKind kind, const Plume& plume,
          RandomDraws& draws) {
  const auto cell = static_cast<std::size_t>(plume.cell);
  scene.kinds[cell] = narrow<std::int32_t>(
      noisy_label(static_cast<std::int64_t>(kind), kPlumeKinds, shape.kind_noise, draws));
  for (std::size_t i = 0; const float number : plume.box())
    scene.boxes[cell * kBoxNumbers + i++] =
        number + static_cast<float>(shape.box_deviation * draws.normal());
}

/// Returns the expected smooth L1 loss of one coordinate of a box under normal noise with this
/// standard deviation.
double mean_box_cost(double deviation, double beta) {
  const double ratio = beta / deviation;
  const double density = std::exp(-0.5 * ratio * ratio) / std::sqrt(2 * std::numbers::pi);
  const double outside = std::erfc(ratio / std::numbers::sqrt2);  // probability
  return deviation * deviation / (2 * beta) * (1 - outside - 2 * ratio * density) +
         2 * deviation * density - beta / 2 * outside;
}

}  // namespace

void write_plume_scene(const PlumeScene& scene, const PlumeShape& shape, PlumeKind kind,
                       const RandomKey& key) {
  std::fill(scene.image.begin(), scene.image.end(), 0.0f);
  std::fill(scene.boxes.begin(), scene.boxes.end(), 0.0f);
  std::fill(scene.kinds.begin(), scene.kinds.end(), kNoTarget);
  RandomDraws draws(key);
  for (std::int64_t i = 0; i < shape.plumes; ++i) {
    const auto cell = static_cast<std::int64_t>(random_permuted(
        second_key(key), static_cast<std::uint64_t>(i), static_cast<std::uint64_t>(shape.cells())));
    const Plume plume = drawn_plume(kind, cell, draws);
    add_plume(scene.image, shape, plume);
    if (draws.unit() >= shape.missed) note(scene, shape, kind, plume, draws);
  }
}

double best_plume_loss(const PlumeShape& shape, const PlumeWeights& weights) {
  const double share = static_cast<double>(shape.plumes) / static_cast<double>(shape.cells());
  const double kind = weights.kind * noisy_label_entropy(kPlumeKinds, shape.kind_noise);
  const double box = weights.box * kBoxNumbers * mean_box_cost(shape.box_deviation, weights.beta);
  return share * (noisy_label_entropy(2, shape.missed) + (1 - shape.missed) * (kind + box));
}

}  // namespace hybrid_trainer
