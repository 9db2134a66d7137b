#include "hybrid_trainer/kernels/normalization.h"

#include "kernels/dispatch.h"

namespace hybrid_trainer::kernels {

namespace cpu {
decltype(kernels::layer_norm_forward) layer_norm_forward;
decltype(kernels::layer_norm_backward) layer_norm_backward;
decltype(kernels::rms_norm_forward) rms_norm_forward;
decltype(kernels::rms_norm_backward) rms_norm_backward;
decltype(kernels::rms_norm_heads_forward) rms_norm_heads_forward;
decltype(kernels::rms_norm_heads_backward) rms_norm_heads_backward;
}  // namespace cpu
namespace cuda {
decltype(kernels::layer_norm_forward) layer_norm_forward;
decltype(kernels::layer_norm_backward) layer_norm_backward;
decltype(kernels::rms_norm_forward) rms_norm_forward;
decltype(kernels::rms_norm_backward) rms_norm_backward;
decltype(kernels::rms_norm_heads_forward) rms_norm_heads_forward;
decltype(kernels::rms_norm_heads_backward) rms_norm_heads_backward;
}  // namespace cuda

void layer_norm_forward(const Tensor& y, const Tensor& mean, const Tensor& rstd, const Tensor& x,
                        const Tensor& weight, const Tensor& bias, float epsilon,
                        const Stream& stream) {
  const KernelCall call{"layer_norm_forward", stream};
  check_rank(call, {"x", x}, 2);
  check_alike_real(call, {{"x", x}, {"y", y}});
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
  check_alike_real(call, {{"x", x}, {"dx", dx}, {"dy", dy}});
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

void rms_norm_forward(const Tensor& y, const Tensor& rstd, const Tensor& x, const Tensor& weight,
                      RmsNormSpec spec, const Stream& stream) {
  const KernelCall call{"rms_norm_forward", stream};
  check_rank(call, {"x", x}, 2);
  check_alike_real(call, {{"x", x}, {"y", y}});
  check_shape(call, {"weight", weight}, {x.size(1)});
  check_optional_shape(call, {"rstd", rstd}, {x.size(0)});
  dispatch<cpu::rms_norm_forward, cuda::rms_norm_forward>(call, Work::kNormalization, y, rstd, x,
                                                          weight, spec);
}

void rms_norm_backward(const Tensor& dx, GradientMode input_mode, const Tensor& dweight,
                       GradientMode parameter_mode, const Tensor& dy, const Tensor& x,
                       const Tensor& rstd, const Tensor& weight, RmsNormSpec spec,
                       const Stream& stream) {
  const KernelCall call{"rms_norm_backward", stream};
  check_rank(call, {"x", x}, 2);
  check_alike_real(call, {{"x", x}, {"dx", dx}, {"dy", dy}});
  check_shape(call, {"weight", weight}, {x.size(1)});
  check_shape(call, {"dweight", dweight}, {x.size(1)});
  check_shape(call, {"rstd", rstd}, {x.size(0)});
  dispatch_with_workspace<cpu::rms_norm_backward, cuda::rms_norm_backward>(
      call, Work::kNormalization, dx, input_mode, dweight, parameter_mode, dy, x, rstd, weight,
      spec);
}

namespace {

void check_heads(const KernelCall& call, const Tensor& x, HeadRange heads, const Tensor& weight) {
  check_real(call, {"x", x}, 3);
  check_rank(call, {"weight", weight}, 1);
  check_dtype(call, {"weight", weight}, DType::kF32);
  if (heads.first < 0 || heads.count < 0 ||
      (heads.first + heads.count) * weight.size(0) > x.size(2)) {
    throw ShapeMismatch(concat(call.kernel, ": x is ", x.shape().text(), ", heads are ",
                               heads.first, " to ", heads.first + heads.count - 1, ", weight is ",
                               weight.shape().text(), "; want rows that hold as many heads"));
  }
}

}  // namespace

void rms_norm_heads_forward(const Tensor& x, HeadRange heads, const Tensor& weight,
                            RmsNormSpec spec, const Stream& stream) {
  const KernelCall call{"rms_norm_heads_forward", stream};
  check_heads(call, x, heads, weight);
  dispatch<cpu::rms_norm_heads_forward, cuda::rms_norm_heads_forward>(call, Work::kNormalization, x,
                                                                      heads, weight, spec);
}

void rms_norm_heads_backward(const Tensor& dx, const Tensor& dweight, GradientMode parameter_mode,
                             const Tensor& x, HeadRange heads, const Tensor& weight,
                             RmsNormSpec spec, const Stream& stream) {
  const KernelCall call{"rms_norm_heads_backward", stream};
  check_heads(call, x, heads, weight);
  check_alike(call, {{"x", x}, {"dx", dx}});
  check_alike(call, {{"weight", weight}, {"dweight", dweight}});
  dispatch_with_workspace<cpu::rms_norm_heads_backward, cuda::rms_norm_heads_backward>(
      call, Work::kNormalization, dx, dweight, parameter_mode, x, heads, weight, spec);
}

}  // namespace hybrid_trainer::kernels
