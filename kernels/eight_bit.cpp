#include "hybrid_trainer/kernels/eight_bit.h"

#include "kernels/dispatch.h"

namespace hybrid_trainer::kernels {

namespace cpu {
decltype(kernels::dequantize_eight_bit) dequantize_eight_bit;
}  // namespace cpu
namespace cuda {
decltype(kernels::dequantize_eight_bit) dequantize_eight_bit;
}  // namespace cuda

EightBitTensors EightBitTensors::empty(std::int64_t rows, std::int64_t columns,
                                       const Stream& stream) {
  return {Tensor::empty({rows, columns}, DType::kI8, MemoryKind::kParameters, stream),
          Tensor::empty({rows}, DType::kF32, MemoryKind::kParameters, stream)};
}

void dequantize_eight_bit(const Tensor& values, const EightBitTensors& from, const Stream& stream) {
  const KernelCall call{"dequantize_eight_bit", stream};
  check_real(call, {"values", values});
  check_rank(call, {"values", values}, 2);
  check_shape(call, {"codes", from.codes}, values.shape(), DType::kI8);
  check_shape(call, {"magnitudes", from.magnitudes}, {values.size(0)}, DType::kF32);
  dispatch<cpu::dequantize_eight_bit, cuda::dequantize_eight_bit>(call, Work::kElementwise, values,
                                                                  from);
}

}  // namespace hybrid_trainer::kernels
