#include "hybrid_trainer/kernels/regression_loss.h"

#include "kernels/cuda/for_packs.cuh"
#include "kernels/distance_loss.h"

namespace hybrid_trainer::kernels::cuda {
namespace {

struct RegressionLoss {
  float *losses, *x;
  const float* targets;
  bool squares;
  float delta, gradient_scale;
  template <int N>
  __device__ void at(std::int64_t i) const {
    float values[N], wanted[N], of_each[N];
    load_pack(values, x + i);
    load_pack(wanted, targets + i);
    for (int k = 0; k < N; ++k) {
      const float d = values[k] - wanted[k];
      const LossAndSlope at = squares ? squared_distance(d) : huber_distance(d, delta);
      of_each[k] = at.loss;
      values[k] = at.slope * gradient_scale;
    }
    store_pack(losses + i, of_each);
    if (gradient_scale != 0.0f) store_pack(x + i, values);
  }
};

}  // namespace

void regression_loss(const Tensor& losses, const Tensor& x, const Tensor& targets,
                     Distance distance, float delta, float gradient_scale, const Stream& stream) {
  const RegressionLoss body{losses.data<float>(),           x.data<float>(), targets.data<float>(),
                            distance == Distance::kSquared, delta,           gradient_scale};
  for_packs<kPackSize<float>>(stream, "regression_loss", x.elements(), body, body.losses, body.x,
                              body.targets);
}

}  // namespace hybrid_trainer::kernels::cuda
