#include "hybrid_trainer/optim/gradient_norm.h"

#include <cmath>

#include "hybrid_trainer/kernels/elementwise.h"

namespace hybrid_trainer {

double wait_for_gradient_norm(const std::vector<Parameter*>& parameters, const Stream& stream) {
  double sum = 0;
  for (const Parameter* parameter : parameters) {
    if (parameter->has_gradient)
      sum += kernels::wait_for_sum_of_squares(parameter->gradient, stream);
  }
  return std::sqrt(sum);
}

float clip_scale(double norm, double clip_norm) {
  const bool too_long = clip_norm > 0 && std::isfinite(norm) && norm > clip_norm;
  return too_long ? static_cast<float>(clip_norm / norm) : 1.0f;
}

}  // namespace hybrid_trainer
