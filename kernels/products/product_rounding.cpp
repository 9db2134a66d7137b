#include "kernels/generated/product_rounding.h"

#include "kernels/backend/dispatch.h"

namespace hybrid_trainer::kernels {

void largest_magnitude(const Tensor& largest, const Tensor& most, const Tensor& x,
                       const Stream& stream) {
  const KernelCall call{"largest_magnitude", stream, Work::kElementwise};
  check_shape(call, {"largest", largest}, {1}, DType::kF32);
  if (most) check_shape(call, {"most", most}, {1}, DType::kF32);
  check_real(call, {"x", x});
  dispatch<cpu::largest_magnitude, cuda::largest_magnitude>(call, largest, most, x);
}

void round_to_float8(const Tensor& to, const Tensor& from, Float8 format, const Tensor& expected,
                     const Tensor& largest, const Stream& stream) {
  const KernelCall call{"round_to_float8", stream, Work::kElementwise};
  check_matching_real(call, {{"to", to}, {"from", from}});
  check_shape(call, {"expected", expected}, {1}, DType::kF32);
  check_shape(call, {"largest", largest}, {1}, DType::kF32);
  dispatch<cpu::round_to_float8, cuda::round_to_float8>(call, to, from, format, expected, largest);
}

void round_to_half(const Tensor& to, const Tensor& from, const Stream& stream) {
  const KernelCall call{"round_to_half", stream, Work::kElementwise};
  check_matching_real(call, {{"to", to}, {"from", from}});
  dispatch<cpu::round_to_half, cuda::round_to_half>(call, to, from);
}

}  // namespace hybrid_trainer::kernels
