#include "hybrid_trainer/kernels/regression_loss.h"

#include "kernels/backend.h"
#include "kernels/cpu/parallel.h"
#include "kernels/distance_loss.h"

namespace hybrid_trainer::kernels::cpu {

void regression_loss(const Tensor& losses, const Tensor& x, const Tensor& targets,
                     Distance distance, float delta, float gradient_scale, const Stream&) {
  float *const loss = losses.data<float>(), *const values = x.data<float>();
  const float* const wanted = targets.data<float>();
  const bool squares = distance == Distance::kSquared;
  parallel_for(x.elements(), [=](std::int64_t begin, std::int64_t end) {
    for (std::int64_t i = begin; i < end; ++i) {
      const float d = values[i] - wanted[i];
      const LossAndSlope at = squares ? squared_distance(d) : huber_distance(d, delta);
      loss[i] = at.loss;
      if (gradient_scale != 0.0f) values[i] = at.slope * gradient_scale;
    }
  });
}

}  // namespace hybrid_trainer::kernels::cpu
