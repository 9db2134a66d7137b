#include "hybrid_trainer/optim/gradient_norm.h"

#include <cmath>
#include <utility>

#include "hybrid_trainer/kernels/reductions.h"

namespace hybrid_trainer {

Tensor gradient_square_sum(const std::vector<Parameter*>& parameters, const Stream& stream) {
  std::vector<Tensor> gradients;
  for (const Parameter* parameter : parameters) {
    if (Tensor gradient = parameter->gradient()) gradients.push_back(std::move(gradient));
  }
  Tensor sum = kernels::empty_result(stream);
  kernels::sum_of_squares(sum, gradients, stream);
  return sum;
}

double wait_for_gradient_norm(const std::vector<Parameter*>& parameters, const Stream& stream) {
  return std::sqrt(kernels::wait_for_value(gradient_square_sum(parameters, stream), stream));
}

float clip_scale(double norm, double clip_norm) {
  const bool too_long = clip_norm > 0 && std::isfinite(norm) && norm > clip_norm;
  return too_long ? static_cast<float>(clip_norm / norm) : 1.0f;
}

}  // namespace hybrid_trainer
