#pragma once

#include <span>

#include "hybrid_trainer/core/random.h"

namespace hybrid_trainer {

/// An infrared image of plumes and what a detector should say of each of grid·grid cells.
struct PlumeShape {
  std::int64_t size = 32;      // pixels of both sides, which `grid` divides
  std::int64_t grid = 4;       // cells of both sides
  std::int64_t plumes = 2;     // of an image, in as many cells
  double missed = 0.2;         // share of the plumes that nobody has noted
  double kind_noise = 0.1;     // share of the kinds that are noted wrong
  double box_deviation = 0.1;  // of each number of a box, in cells
  std::int64_t cells() const { return grid * grid; }
};

enum class PlumeKind { kNarrow, kBroad };
inline constexpr std::int64_t kPlumeKinds = 2, kBoxNumbers = 4;

/// Where what is drawn and noted of an image goes.
struct PlumeScene {
  std::span<float> image;  // (size, size)
  std::span<float> boxes;  // (cells, 4): middle x, y, width, height, in cells; 0 without a plume
  std::span<std::int32_t> kinds;  // (cells); kNoTarget where no plume is noted
};

/// Draws plumes of one kind, without noise: what is noted is all that is uncertain.
void write_plume_scene(const PlumeScene& scene, const PlumeShape& shape, PlumeKind kind,
                       const RandomKey& key);

/// The factors of a detector's loss of a cell: those of boxes and kinds are of cells with a plume alone.
struct PlumeWeights {
  double box = 1, kind = 1;
  double beta = 1;  // a number of a box that is d away costs d²/(2·beta), from beta on |d| − beta/2
};

/// The least loss of a cell, of the mean over all: p·(H(q) + (1 − q)·(kind·H(kind_noise) + box·4·L)).
/// p is the share of cells with a plume, and q the share of plumes that nobody has noted. H is the
/// entropy of a noisy label. L is the mean cost of a number of a box, under normal noise.
double best_plume_loss(const PlumeShape& shape, const PlumeWeights& weights = {});

}  // namespace hybrid_trainer
