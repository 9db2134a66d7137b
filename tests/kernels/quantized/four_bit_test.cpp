#include "kernels/quantized/quantization.h"

#include <limits>

#include "tests/kernels/kernel_case.h"

namespace hybrid_trainer::kernels {
namespace {

FourBitTensors four_bit_tensors(std::int64_t count, const Stream& stream) {
  const auto make = [&](std::int64_t elements, DType dtype) {
    return Tensor::empty({elements}, dtype, MemoryKind::kWorkspace, stream);
  };
  return {make((count + 1) / 2, DType::kU8), {}, make((count + 63) / 64, DType::kF32)};
}

TEST(FourBitQuantization, RoundsToNearestValueOfBlock) {
  const Stream stream = cpu_stream();
  for (const std::int64_t count : {1, 63, 64, 65, 20'011}) {
    const Tensor x = random_tensor({count}, DType::kF32, 3, stream, 1e-3);
    const FourBitTensors to = four_bit_tensors(count, stream);
    quantize_four_bit(to, x, stream);
    const Tensor back = Tensor::empty_like(x, MemoryKind::kWorkspace, stream);
    dequantize_four_bit(back, to, stream);
    for (std::int64_t i = 0; i < count; ++i) {
      const float scale = to.scales.data<float>()[i / kFourBitBlock];
      float nearest = std::numeric_limits<float>::infinity();
      for (const float value : kFourBitValues)
        nearest = std::min(nearest, std::abs(value * scale - x.data<float>()[i]));
      ASSERT_NEAR(std::abs(back.data<float>()[i] - x.data<float>()[i]), nearest, 1e-6f * scale)
          << i << " of " << count;
      ASSERT_LE(std::abs(x.data<float>()[i]), scale);
    }
  }
}

TEST(FourBitQuantization, KeepsRepresentableValuesAndTiesRoundDown) {
  const Stream stream = cpu_stream();
  Values values;
  for (const float value : kFourBitValues) values.push_back(static_cast<double>(value) * 3.5);
  values.push_back(0.5 * 3.5 * static_cast<double>(kFourBitValues[7] + kFourBitValues[8]));
  const Tensor x = tensor_of(values, {17}, DType::kF32, stream);
  const FourBitTensors to = four_bit_tensors(17, stream);
  quantize_four_bit(to, x, stream);
  const std::uint8_t* const codes = to.codes.data<std::uint8_t>();
  for (int i = 0; i < 16; ++i) EXPECT_EQ(codes[i / 2] >> (i % 2 == 0 ? 4 : 0) & 15, i);
  EXPECT_EQ(codes[8], 7 << 4 | 7) << "the smaller of two equally near values, and 0 beyond the end";
}

TEST(FourBitQuantization, KeepsZerosAndMarksNonFiniteBlocks) {
  const Stream stream = cpu_stream();
  const Tensor x = random_tensor({256}, DType::kF32, 3, stream);
  for (int i = 0; i < 64; ++i) x.data<float>()[i] = 0;
  x.data<float>()[70] = std::numeric_limits<float>::quiet_NaN();
  x.data<float>()[130] = -std::numeric_limits<float>::infinity();
  const FourBitTensors to = four_bit_tensors(256, stream);
  quantize_four_bit(to, x, stream);
  dequantize_four_bit(x, to, stream);
  for (int i = 0; i < 256; ++i) {
    const float back = x.data<float>()[i];
    const bool is_broken = i >= 64 && i < 192;
    EXPECT_EQ(std::isnan(back), is_broken) << i;
    EXPECT_TRUE(i >= 64 || back == 0) << i;
  }
}

}  // namespace
}  // namespace hybrid_trainer::kernels
