#include "hybrid_trainer/kernels/quantization.h"

#include "kernels/check.h"
#include "kernels/cpu/quantization.h"
#include "kernels/cuda/quantization.h"

namespace hybrid_trainer::kernels {
namespace {

void check_quantized(const char* kernel, const Tensor& codes, const Tensor& scales,
                     const Tensor& x) {
  check_dtype(kernel, {"x", x}, DType::kF32);
  check_dtype(kernel, {"codes", codes}, DType::kU8);
  check_shape(kernel, {"codes", codes}, x.shape());
  check_dtype(kernel, {"scales", scales}, DType::kF32);
  check_shape(kernel, {"scales", scales}, {quantization_blocks(x.elements())});
}

}  // namespace

void quantize(const Tensor& codes, const Tensor& scales, const Tensor& x, QuantizationMap map,
              const Stream& stream) {
  check_quantized("quantize", codes, scales, x);
  visit_backend(stream, Work::kElementwise,
                [&](auto backend) { quantize(backend, codes, scales, x, map); });
}

void dequantize(const Tensor& x, const Tensor& codes, const Tensor& scales, QuantizationMap map,
                const Stream& stream) {
  check_quantized("dequantize", codes, scales, x);
  visit_backend(stream, Work::kElementwise,
                [&](auto backend) { dequantize(backend, x, codes, scales, map); });
}

}  // namespace hybrid_trainer::kernels
