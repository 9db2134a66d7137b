#include "hybrid_trainer/kernels/quantization.h"

#include "kernels/dispatch.h"

namespace hybrid_trainer::kernels {

namespace cpu {
decltype(kernels::quantize) quantize;
decltype(kernels::dequantize) dequantize;
}  // namespace cpu
namespace cuda {
decltype(kernels::quantize) quantize;
decltype(kernels::dequantize) dequantize;
}  // namespace cuda

namespace {

void check_quantized(const KernelCall& call, const Tensor& codes, const Tensor& scales,
                     const Tensor& x) {
  check_dtype(call, {"x", x}, DType::kF32);
  check_shape(call, {"codes", codes}, x.shape(), DType::kU8);
  check_dtype(call, {"scales", scales}, DType::kF32);
  check_shape(call, {"scales", scales}, {quantization_blocks(x.elements())});
}

}  // namespace

void quantize(const Tensor& codes, const Tensor& scales, const Tensor& x, QuantizationMap map,
              const Stream& stream) {
  const KernelCall call{"quantize", stream};
  check_quantized(call, codes, scales, x);
  dispatch<cpu::quantize, cuda::quantize>(call, Work::kElementwise, codes, scales, x, map);
}

void dequantize(const Tensor& x, const Tensor& codes, const Tensor& scales, QuantizationMap map,
                const Stream& stream) {
  const KernelCall call{"dequantize", stream};
  check_quantized(call, codes, scales, x);
  dispatch<cpu::dequantize, cuda::dequantize>(call, Work::kElementwise, x, codes, scales, map);
}

}  // namespace hybrid_trainer::kernels
