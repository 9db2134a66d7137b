#pragma once

#include <cmath>

namespace hybrid_trainer {

struct GradientMeasurement {
  double loss = 0;  // mean over the batch, at the weights where the gradient was taken
  double norm = 0;  // global L2 norm of the gradient before clipping
  bool finite() const { return std::isfinite(loss) && std::isfinite(norm); }
};

}  // namespace hybrid_trainer
