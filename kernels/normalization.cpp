#include "hybrid_trainer/kernels/normalization.h"

#include "kernels/dispatch.h"

namespace hybrid_trainer::kernels {

namespace cpu {
decltype(kernels::layer_norm_forward) layer_norm_forward;
decltype(kernels::layer_norm_backward) layer_norm_backward;
}  // namespace cpu
namespace cuda {
decltype(kernels::layer_norm_forward) layer_norm_forward;
decltype(kernels::layer_norm_backward) layer_norm_backward;
}  // namespace cuda

void layer_norm_forward(const Tensor& y, const Tensor& mean, const Tensor& rstd, const Tensor& x,
                        const Tensor& weight, const Tensor& bias, float epsilon,
                        const Stream& stream) {
  const KernelCall call{"layer_norm_forward", stream};
  check_rank(call, {"x", x}, 2);
  check_real(call, {"x", x});
  check_alike(call, {{"x", x}, {"y", y}});
  check_shape(call, {"weight", weight}, {x.size(1)});
  check_shape(call, {"bias", bias}, {x.size(1)});
  check_optional_shape(call, {"mean", mean}, {x.size(0)});
  check_optional_shape(call, {"rstd", rstd}, {x.size(0)});
  dispatch<cpu::layer_norm_forward, cuda::layer_norm_forward>(call, Work::kNormalization, y, mean,
                                                              rstd, x, weight, bias, epsilon);
}

void layer_norm_backward(const Tensor& dx, GradientMode input_mode, const Tensor& dweight,
                         const Tensor& dbias, GradientMode parameter_mode, const Tensor& dy,
                         const Tensor& x, const Tensor& mean, const Tensor& rstd,
                         const Tensor& weight, const Stream& stream) {
  const KernelCall call{"layer_norm_backward", stream};
  check_rank(call, {"x", x}, 2);
  check_real(call, {"x", x});
  check_alike(call, {{"x", x}, {"dx", dx}, {"dy", dy}});
  for (const NamedTensor& row :
       {NamedTensor{"weight", weight}, {"dweight", dweight}, {"dbias", dbias}}) {
    check_shape(call, row, {x.size(1)});
  }
  check_shape(call, {"mean", mean}, {x.size(0)});
  check_shape(call, {"rstd", rstd}, {x.size(0)});
  dispatch_with_workspace<cpu::layer_norm_backward, cuda::layer_norm_backward>(
      call, Work::kNormalization, dx, input_mode, dweight, dbias, parameter_mode, dy, x, mean, rstd,
      weight);
}

}  // namespace hybrid_trainer::kernels
