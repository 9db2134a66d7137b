#include "hybrid_trainer/kernels/four_bit.h"

#include "kernels/dispatch.h"
#include "kernels/four_bit_check.h"
#include "kernels/four_bit_levels.h"

namespace hybrid_trainer::kernels {

namespace cpu {
decltype(kernels::dequantize_four_bit) dequantize_four_bit;
decltype(kernels::quantize_four_bit) quantize_four_bit;
}  // namespace cpu
namespace cuda {
decltype(kernels::dequantize_four_bit) dequantize_four_bit;
decltype(kernels::quantize_four_bit) quantize_four_bit;
}  // namespace cuda

constexpr std::array<float, 256> kFourBitLevels = make_four_bit_levels();

FourBitTensors FourBitTensors::empty(std::int64_t count, FourBitType type, const Stream& stream) {
  const auto make = [&](std::int64_t elements, DType dtype) {
    return Tensor::empty({elements}, dtype, MemoryKind::kParameters, stream);
  };
  const std::int64_t blocks = four_bit_parts(count, kFourBitBlock);
  return {make(four_bit_parts(count, 2), DType::kU8), make(blocks, DType::kU8),
          make(four_bit_parts(blocks, kFourBitLevelBlock), DType::kF32), 0, type};
}

void dequantize_four_bit(const Tensor& values, const FourBitTensors& from, const Stream& stream) {
  const KernelCall call{"dequantize_four_bit", stream};
  check_real(call, {"values", values});
  check_four_bit(call, from, values.elements());
  dispatch<cpu::dequantize_four_bit, cuda::dequantize_four_bit>(call, Work::kElementwise, values,
                                                                from);
}

void quantize_four_bit(const FourBitTensors& to, const Tensor& values, const Stream& stream) {
  const KernelCall call{"quantize_four_bit", stream};
  require(to.type == FourBitType::kNormal && !to.levels.defined(),
          "quantize_four_bit writes NormalFloat 4 with f32 scales");
  check_dtype(call, {"values", values}, DType::kF32);
  check_four_bit(call, to, values.elements());
  dispatch<cpu::quantize_four_bit, cuda::quantize_four_bit>(call, Work::kElementwise, to, values);
}

}  // namespace hybrid_trainer::kernels
