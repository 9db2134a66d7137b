#pragma once

#include <cstdint>
#include <span>

#include "hybrid_trainer/core/random.h"

namespace hybrid_trainer {

/// Draws a curve y = a·exp(−k·t)·(1 + noise up to 1 %) at times t = 0 to 1. a is in [0.8, 1.2). k is in
/// [0.5, 1) of a slow curve, and in [1.5, 2) of a fast one.
void write_cooling_curve(std::span<float> curve, bool fast, const RandomKey& key);

/// k by a straight line through the logarithms of the curve, of least squares. The noise of a curve moves
/// it by less than 0.07, so that it tells slow from fast.
double fitted_cooling(std::span<const float> curve);

}  // namespace hybrid_trainer
