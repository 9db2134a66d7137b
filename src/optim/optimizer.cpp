#include "hybrid_trainer/optim/optimizer.h"

#include <cmath>

#include "hybrid_trainer/core/tensor.h"
#include "hybrid_trainer/kernels/reductions.h"

namespace hybrid_trainer {

std::vector<Tensor> gradient_square_sums(const std::vector<Parameter*>& parameters,
                                         const Stream& stream) {
  std::vector<Tensor> gradients, sums;
  for (const Parameter* parameter : parameters) {
    const Tensor gradient = parameter->gradient();
    if (!gradient) continue;
    if (gradient.device() == stream.device()) {
      gradients.push_back(gradient);
      continue;
    }
    const StagedTensor here(gradient, Use::kRead, stream);
    sums.push_back(kernels::empty_result(stream));
    kernels::sum_of_squares(sums.back(), {&static_cast<const Tensor&>(here), 1}, stream);
  }
  sums.push_back(kernels::empty_result(stream));
  kernels::sum_of_squares(sums.back(), gradients, stream);
  return sums;
}

double wait_for_norm(const std::vector<Tensor>& square_sums, const Stream& stream) {
  double sum = 0;
  for (const Tensor& of_some : square_sums) sum += kernels::wait_for_value(of_some, stream);
  return std::sqrt(sum);
}

float clip_scale(double norm, double clip_norm) {
  const bool too_long = clip_norm > 0 && std::isfinite(norm) && norm > clip_norm;
  return too_long ? static_cast<float>(clip_norm / norm) : 1.0f;
}

void Optimizer::step(float learning_rate, float gradient_scale, const Stream& stream) {
  begin_step(stream);
  update_weights(learning_rate, gradient_scale, stream);
  end_step(stream);
}

void Optimizer::update_weights(float learning_rate, float gradient_scale, const Stream& stream) {
  for (std::size_t i = 0; i < weights(); ++i)
    update_weight(i, learning_rate, gradient_scale, stream);
}

}  // namespace hybrid_trainer
