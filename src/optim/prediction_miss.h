#pragma once

#include <string>

#include "src/optim/exact_weight.h"

namespace hybrid_trainer {

/// How far predictions were off, in squares, and where most.
struct PredictionMiss {
  double missed = 0, moved = 0, worst = 0;
  std::string worst_weight{};
  /// Of a weight; a change from `before` to `after` was predicted. The first two are overwritten.
  /// Blocks.
  void wait_and_add(const ExactWeight& weight, const Tensor& predicted, const Tensor& before,
                    const Tensor& after, const Stream& stream);
  /// ‖predicted − exact‖/‖exact‖.
  double error() const;
};

}  // namespace hybrid_trainer
