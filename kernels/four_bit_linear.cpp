#include "hybrid_trainer/kernels/four_bit_linear.h"

#include "kernels/dispatch.h"
#include "kernels/four_bit_check.h"

namespace hybrid_trainer::kernels {

namespace cpu {
decltype(kernels::four_bit_linear) four_bit_linear;
}  // namespace cpu
namespace cuda {
decltype(kernels::four_bit_linear) four_bit_linear;
}  // namespace cuda

void four_bit_linear(const Tensor& y, const Tensor& x, const FourBitRows& w, const Tensor& bias,
                     const Tensor& residual, const Stream& stream) {
  const KernelCall call{"four_bit_linear", stream};
  check_real(call, {"x", x}, 2);
  check_rank(call, {"y", y}, 2);
  const std::int64_t inputs = x.size(1), outputs = y.size(1);
  if (inputs == 0 || inputs % kFourBitBlock != 0 || w.first < 0 || w.first + w.count > outputs) {
    throw ShapeMismatch(concat("four_bit_linear: x is ", x.shape().text(), ", y is ",
                               y.shape().text(), ", w has rows ", w.first, " to ",
                               w.first + w.count, "; want a multiple of ", kFourBitBlock,
                               " columns of x, and rows within the columns of y"));
  }
  check_shape(call, {"y", y}, {x.size(0), outputs}, x.dtype());
  check_optional_shape(call, {"bias", bias}, {outputs});
  if (bias) check_dtype(call, {"bias", bias}, DType::kF32);
  check_optional_shape(call, {"residual", residual}, y.shape());
  if (residual) check_dtype(call, {"residual", residual}, x.dtype());
  check_four_bit(call, w.tensors, w.count * inputs);
  dispatch_with_workspace<cpu::four_bit_linear, cuda::four_bit_linear>(call, Work::kProduct, y, x,
                                                                       w, bias, residual);
}

}  // namespace hybrid_trainer::kernels
