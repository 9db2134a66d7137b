#include "kernels/quantized/quantization.h"

#include "tests/kernels/kernel_case.h"

namespace hybrid_trainer::kernels {
namespace {

/// All codes, with exponents from 120 upward.
MicroScalingTensors all_codes(std::int64_t rows, const Stream& stream) {
  const auto tensors = MicroScalingTensors::empty(rows, kMicroScalingBlock, stream);
  for (std::int64_t i = 0; i < tensors.codes.elements(); ++i)
    tensors.codes.data<std::uint8_t>()[i] = static_cast<std::uint8_t>(i * 37 + 0x10);
  for (std::int64_t row = 0; row < rows; ++row)
    tensors.exponents.data<std::uint8_t>()[row] = static_cast<std::uint8_t>(120 + row);
  return tensors;
}

TEST(MicroScaling, DequantizesEachCodeByPowerOfTwo) {
  constexpr double kSizes[] = {0, 0.5, 1, 1.5, 2, 3, 4, 6};
  constexpr std::int64_t kRows = 15;
  const Stream stream = cpu_stream();
  const MicroScalingTensors from = all_codes(kRows, stream);
  Values wanted;
  for (std::int64_t i = 0; i < kRows * kMicroScalingBlock; ++i) {
    const int both = from.codes.data<std::uint8_t>()[i / 2],
              code = i % 2 == 0 ? both % 16 : both / 16;
    const int exponent = from.exponents.data<std::uint8_t>()[i / kMicroScalingBlock];
    wanted.push_back((code >= 8 ? -1 : 1) * std::ldexp(kSizes[code % 8], exponent - 127));
  }
  for (const DType dtype : kRealTypes) {
    const Tensor values =
        Tensor::empty({kRows, kMicroScalingBlock}, dtype, MemoryKind::kWorkspace, stream);
    dequantize_micro_scaling(values, from, stream);
    EXPECT_EQ(values_of(values), wanted) << name_of(dtype);
  }
}

TEST(MicroScaling, LastExponentMeansNaN) {
  EXPECT_TRUE(std::isnan(micro_scaling_factor(255)));
  EXPECT_TRUE(std::isfinite(6 * micro_scaling_factor(kMaxMicroScalingExponent)));
  EXPECT_FALSE(std::isfinite(6 * micro_scaling_factor(kMaxMicroScalingExponent + 1)));
}

TEST(MicroScaling, RefusesPartialBlock) {
  const Stream stream = cpu_stream();
  const Tensor values = Tensor::empty({1, 40}, DType::kF32, MemoryKind::kWorkspace, stream);
  EXPECT_THROW(dequantize_micro_scaling(values, MicroScalingTensors::empty(1, 40, stream), stream),
               ShapeMismatch);
}

}  // namespace
}  // namespace hybrid_trainer::kernels
