#include "hybrid_trainer/kernels/convolution.h"

#include "kernels/dispatch.h"
#include "kernels/window_check.h"

namespace hybrid_trainer::kernels {

namespace cpu {
decltype(kernels::convolution_forward) convolution_forward;
decltype(kernels::convolution_backward_input) convolution_backward_input;
decltype(kernels::convolution_backward_weight) convolution_backward_weight;
}  // namespace cpu
namespace cuda {
decltype(kernels::convolution_forward) convolution_forward;
decltype(kernels::convolution_backward_input) convolution_backward_input;
decltype(kernels::convolution_backward_weight) convolution_backward_weight;
}  // namespace cuda

namespace {

/// Checks x, or its gradient, the weight, or its gradient, and y, or its gradient.
void check_convolution(const KernelCall& call, const NamedTensor& x, const NamedTensor& weight,
                       const NamedTensor& y, const Window& window, std::int64_t groups) {
  check_window(call, x, window);
  check_rank(call, weight, 2);
  const Shape& shape = x.tensor.shape();
  const std::int64_t channels = shape[shape.rank() - 1], outputs = weight.tensor.size(0),
                     taps = window.taps(spatial_rank(shape));
  if (groups < 1 || channels % groups != 0 || outputs % groups != 0) {
    throw ShapeMismatch(concat(call.kernel, ": ", channels, " channels and ", outputs,
                               " outputs in ", groups,
                               " groups; want groups that divide both of them"));
  }
  check_shape(call, weight, {outputs, taps * (channels / groups)});
  check_shape(call, y, window_outputs(shape, window, outputs), x.tensor.dtype());
}

}  // namespace

void convolution_forward(const Tensor& y, const Tensor& x, const Tensor& weight, const Tensor& bias,
                         const Window& window, std::int64_t groups, const Stream& stream) {
  const KernelCall call{"convolution_forward", stream};
  check_convolution(call, {"x", x}, {"weight", weight}, {"y", y}, window, groups);
  check_dtype(call, {"weight", weight}, x.dtype());
  if (bias) check_shape(call, {"bias", bias}, {weight.size(0)}, DType::kF32);
  dispatch_with_workspace<cpu::convolution_forward, cuda::convolution_forward>(
      call, Work::kProduct, y, x, weight, bias, window, groups);
}

void convolution_backward_input(const Tensor& dx, const Tensor& dy, const Tensor& weight,
                                const Window& window, std::int64_t groups, const Stream& stream) {
  const KernelCall call{"convolution_backward_input", stream};
  check_convolution(call, {"dx", dx}, {"weight", weight}, {"dy", dy}, window, groups);
  check_dtype(call, {"weight", weight}, dx.dtype());
  dispatch_with_workspace<cpu::convolution_backward_input, cuda::convolution_backward_input>(
      call, Work::kProduct, dx, dy, weight, window, groups);
}

void convolution_backward_weight(const Tensor& dweight, const Tensor& dy, const Tensor& x,
                                 const Window& window, std::int64_t groups, GradientMode mode,
                                 const Stream& stream) {
  const KernelCall call{"convolution_backward_weight", stream};
  check_convolution(call, {"x", x}, {"dweight", dweight}, {"dy", dy}, window, groups);
  check_dtype(call, {"dweight", dweight}, DType::kF32);
  dispatch_with_workspace<cpu::convolution_backward_weight, cuda::convolution_backward_weight>(
      call, Work::kProduct, dweight, dy, x, window, groups, mode);
}

}  // namespace hybrid_trainer::kernels
