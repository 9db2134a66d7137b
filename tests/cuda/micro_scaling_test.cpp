#include "kernels/quantized/quantization.h"

#include "tests/cuda/cuda_case.h"

namespace hybrid_trainer::kernels {
namespace {

TEST(CudaMicroScaling, DequantizeMatchesCpuBitForBit) {
  const Stream host = cpu_stream();
  for (const DType dtype : kRealTypes) {
    for (const Shape& shape : {Shape{1, 32}, Shape{9, 96}}) {
      const auto from = MicroScalingTensors::empty(shape[0], shape[1], host);
      for (std::int64_t i = 0; i < from.codes.elements(); ++i)
        from.codes.data<std::uint8_t>()[i] = static_cast<std::uint8_t>(i * 37 + 0x10);
      for (std::int64_t i = 0; i < from.exponents.elements(); ++i)
        from.exponents.data<std::uint8_t>()[i] = static_cast<std::uint8_t>(110 + i);
      expect_like_cpu({random_tensor(shape, dtype, 1, host), from.codes, from.exponents}, 0,
                      concat(shape.text(), " ", name_of(dtype)),
                      [](const Tensors& t, const Stream& stream) {
                        dequantize_micro_scaling(t[0], {t[1], t[2]}, stream);
                      });
    }
  }
}

}  // namespace
}  // namespace hybrid_trainer::kernels
