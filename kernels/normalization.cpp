#include "hybrid_trainer/kernels/normalization.h"

#include "kernels/check.h"
#include "kernels/cpu/normalization.h"
#include "kernels/cuda/normalization.h"

namespace hybrid_trainer::kernels {

void layer_norm_forward(const Tensor& y, const Tensor& mean, const Tensor& rstd, const Tensor& x,
                        const Tensor& weight, const Tensor& bias, const Stream& stream) {
  constexpr auto kKernel = "layer_norm_forward";
  check_rank(kKernel, {"x", x}, 2);
  check_real(kKernel, {"x", x});
  check_alike(kKernel, {{"x", x}, {"y", y}});
  check_shape(kKernel, {"weight", weight}, {x.size(1)});
  check_shape(kKernel, {"bias", bias}, {x.size(1)});
  check_optional_shape(kKernel, {"mean", mean}, {x.size(0)});
  check_optional_shape(kKernel, {"rstd", rstd}, {x.size(0)});
  visit_backend(stream, Work::kNormalization,
                [&](auto backend) { layer_norm_forward(backend, y, mean, rstd, x, weight, bias); });
}

void layer_norm_backward(const Tensor& dx, GradientMode input_mode, const Tensor& dweight,
                         const Tensor& dbias, GradientMode parameter_mode, const Tensor& dy,
                         const Tensor& x, const Tensor& mean, const Tensor& rstd,
                         const Tensor& weight, const Stream& stream) {
  constexpr auto kKernel = "layer_norm_backward";
  check_rank(kKernel, {"x", x}, 2);
  check_real(kKernel, {"x", x});
  check_alike(kKernel, {{"x", x}, {"dx", dx}, {"dy", dy}});
  for (const NamedTensor& row :
       {NamedTensor{"weight", weight}, {"dweight", dweight}, {"dbias", dbias}}) {
    check_shape(kKernel, row, {x.size(1)});
  }
  check_shape(kKernel, {"mean", mean}, {x.size(0)});
  check_shape(kKernel, {"rstd", rstd}, {x.size(0)});
  visit_backend(stream, Work::kNormalization, [&](auto backend) {
    layer_norm_backward(backend, dx, input_mode, dweight, dbias, parameter_mode, dy, x, mean, rstd,
                        weight);
  });
}

}  // namespace hybrid_trainer::kernels
