#include "kernels/backend/dispatch.h"
#include "kernels/generated/convolution.h"

namespace hybrid_trainer::kernels {

namespace {

void check_taps(const KernelCall& call, const Tensor& x, int rank, std::int64_t first,
                const Tensor& weight, const Tensor& bias, ConvolutionSpec spec) {
  check_real(call, {"x", x}, rank);
  check_rank(call, {"weight", weight}, 2, DType::kF32);
  check_optional_shape(call, {"bias", bias}, {weight.size(0)}, DType::kF32);
  const std::int64_t channels = weight.size(0), taps = weight.size(1), width = x.size(rank - 1);
  if (taps < 1 || taps > kMaxTaps || spec.ahead < 0 || spec.ahead >= taps)
    throw_mismatch(call, "weight is ", weight.shape().text(), ", taps ahead ", spec.ahead,
                   "; want 1 to ", kMaxTaps, " taps, and fewer taps ahead than taps");
  if (first < 0 || first + channels > width)
    throw_mismatch(call, "x is ", x.shape().text(), ", the first channel is ", first,
                   ", weight is ", weight.shape().text(),
                   "; want rows of x that contain all channels of weight");
}

void check_sequences(const KernelCall& call, const Tensor& x, const Tensor& weight,
                     const NamedTensor& before, const Tensor& positions, ConvolutionSpec spec) {
  if (before.tensor) {
    check_shape(call, before, {x.size(0), weight.size(1) - 1 - spec.ahead, weight.size(0)},
                x.dtype());
  }
  if (positions) check_shape(call, {"positions", positions}, {x.size(0), x.size(1)}, DType::kI32);
}

}  // namespace

void causal_convolution_forward(const Tensor& y, const Tensor& x, std::int64_t first,
                                const Tensor& weight, const Tensor& bias, const Tensor& before,
                                const Tensor& positions, ConvolutionSpec spec,
                                const Stream& stream) {
  const KernelCall call{"causal_convolution_forward", stream, Work::kElementwise};
  check_taps(call, x, 3, first, weight, bias, spec);
  check_sequences(call, x, weight, {"before", before}, positions, spec);
  check_shape(call, {"y", y}, {x.size(0), x.size(1), weight.size(0)}, x.dtype());
  dispatch_with_workspace<cpu::causal_convolution_forward, cuda::causal_convolution_forward>(
      call, y, x, first, weight, bias, before, positions, spec);
}

void causal_convolution_backward(const Tensor& dx, const Tensor& dweight, const Tensor& dbias,
                                 GradientMode mode, const Tensor& dbefore, const Tensor& dy,
                                 const Tensor& x, std::int64_t first, const Tensor& weight,
                                 const Tensor& bias, const Tensor& before, const Tensor& positions,
                                 ConvolutionSpec spec, const Stream& stream) {
  const KernelCall call{"causal_convolution_backward", stream, Work::kElementwise};
  check_taps(call, x, 3, first, weight, bias, spec);
  check_sequences(call, x, weight, {"before", before}, positions, spec);
  check_sequences(call, x, weight, {"dbefore", dbefore}, positions, spec);
  check_matching(call, {{"x", x}, {"dx", dx}});
  check_shape(call, {"dy", dy}, {x.size(0), x.size(1), weight.size(0)}, x.dtype());
  if (dweight) check_matching(call, {{"weight", weight}, {"dweight", dweight}});
  if (dbias) check_shape(call, {"dbias", dbias}, {weight.size(0)}, DType::kF32);
  dispatch_with_workspace<cpu::causal_convolution_backward, cuda::causal_convolution_backward>(
      call, dx, dweight, dbias, mode, dbefore, dy, x, first, weight, bias, before, positions, spec);
}

void causal_convolution_step(const Tensor& y, const Tensor& state, const Tensor& x,
                             std::int64_t first, const Tensor& weight, const Tensor& bias,
                             const Tensor& texts, ConvolutionSpec spec, const Stream& stream) {
  const KernelCall call{"causal_convolution_step", stream, Work::kElementwise};
  check_taps(call, x, 2, first, weight, bias, spec);
  require(spec.ahead == 0, "causal_convolution_step: later tokens do not exist yet; want ahead 0");
  check_rank(call, {"state", state}, 3);
  check_shape(call, {"state", state}, {state.size(0), weight.size(1) - 1, weight.size(0)},
              x.dtype());
  check_shape(call, {"texts", texts}, {x.size(0)}, DType::kI32);
  check_shape(call, {"y", y}, {x.size(0), weight.size(0)}, x.dtype());
  dispatch_with_workspace<cpu::causal_convolution_step, cuda::causal_convolution_step>(
      call, y, state, x, first, weight, bias, texts, spec);
}

}  // namespace hybrid_trainer::kernels
