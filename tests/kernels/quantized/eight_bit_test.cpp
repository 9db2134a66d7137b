#include "kernels/quantized/quantization.h"

#include "tests/kernels/kernel_case.h"

namespace hybrid_trainer::kernels {
namespace {

TEST(EightBit, DequantizesEachRowByItsMagnitude) {
  const Stream stream = cpu_stream();
  constexpr std::int64_t kRows = 5, kColumns = 7;
  const auto from = EightBitTensors::empty(kRows, kColumns, stream);
  Values wanted;
  for (std::int64_t i = 0; i < kRows * kColumns; ++i) {
    const auto code = static_cast<std::int8_t>(i % 3 == 0 ? -127 + i : 127 - i);
    const float magnitude = 0.5f + static_cast<float>(i / kColumns);
    from.codes.data<std::int8_t>()[i] = code;
    from.magnitudes.data<float>()[i / kColumns] = magnitude;
    wanted.push_back(static_cast<double>(code) / 127 * static_cast<double>(magnitude));
  }
  for (const DType dtype : kRealTypes) {
    const Tensor values = Tensor::zeros({kRows, kColumns}, dtype, MemoryKind::kWorkspace, stream);
    dequantize_eight_bit(values, from, stream);
    expect_close(values, wanted, tolerance_of(dtype));
  }
}

}  // namespace
}  // namespace hybrid_trainer::kernels
