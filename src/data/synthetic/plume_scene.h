#pragma once

#include <span>

#include "hybrid_trainer/core/random.h"

namespace hybrid_trainer {

/// Shape of an infrared image of plumes with a target for each of grid·grid cells of a detector.
struct PlumeShape {
  std::int64_t size = 32;      // side of the image in pixels, a multiple of `grid`
  std::int64_t grid = 4;       // side of the detector's grid in cells
  std::int64_t plumes = 2;     // plumes per image, each in a different cell
  double missed = 0.2;         // share of unlabeled plumes
  double kind_noise = 0.1;     // share of plumes with a wrong kind label
  double box_deviation = 0.1;  // standard deviation of each number of a box label, in cells
  std::int64_t cells() const { return grid * grid; }
};

enum class PlumeKind { kNarrow, kBroad };
inline constexpr std::int64_t kPlumeKinds = 2, kBoxNumbers = 4;

struct PlumeScene {
  std::span<float> image;  // (size, size)
  /// Center x, y, width, height, in cells; 0 if the cell has no plume.
  std::span<float> boxes;
  std::span<std::int32_t> kinds;  // (cells); kNoTarget if the cell has no labeled plume
};

/// Draws plumes of one kind, without noise in the image: only the labels are uncertain.
void write_plume_scene(const PlumeScene& scene, const PlumeShape& shape, PlumeKind kind,
                       const RandomKey& key);

/// Weights of a detector's loss per cell; box and kind count only in cells with a plume.
struct PlumeWeights {
  double box = 1, kind = 1;
  /// An error d in one number of a box costs d²/(2·beta) if |d| < beta, otherwise |d| − beta/2.
  double beta = 1;
};

/// Returns the minimum mean loss of a cell: p·(H(q) + (1 − q)·(kind·H(kind_noise) + box·4·L)). p is
/// the share of cells with a plume, q the share of unlabeled plumes, H the entropy of a noisy
/// label, and L the mean cost of one number of a box under normal noise.
double best_plume_loss(const PlumeShape& shape, const PlumeWeights& weights = {});

}  // namespace hybrid_trainer
