#include "kernels/quantized/weight_blocks.h"

#include <algorithm>
#include <cmath>

#include "tests/cuda/cuda_case.h"

namespace hybrid_trainer::kernels {
namespace {

/// Fills each row with the first random bytes that represent finite numbers.
void fill_with_finite_blocks(const BlockTensors& blocks, const Shape& shape, const Stream& host) {
  const std::int64_t bytes = blocks.bytes.elements() / shape[0];
  const Tensor values = Tensor::empty({1, shape[1]}, DType::kF32, MemoryKind::kWorkspace, host);
  std::uint64_t draw = 0;
  for (std::int64_t row = 0; row < shape[0]; ++row) {
    const Tensor of_row = blocks.bytes.rows(row * bytes, (row + 1) * bytes);
    const auto is_finite = [&] {
      dequantize_blocks(values, {of_row, blocks.format}, host);
      const std::vector<double> numbers = values_of(values);
      return std::ranges::all_of(numbers, [](double number) { return std::isfinite(number); });
    };
    do {
      for (std::int64_t i = 0; i < bytes; ++i)
        of_row.data<std::uint8_t>()[i] =
            static_cast<std::uint8_t>(random_below({7, 0, 0}, draw++, 256));
    } while (!is_finite());
  }
}

TEST(CudaWeightBlocks, DequantizeMatchesCpuBitForBit) {
  const Stream host = cpu_stream();
  for (int number = 0; number < kBlockFormats; ++number) {
    const auto format = static_cast<BlockFormat>(number);
    for (const DType dtype : kRealTypes) {
      const Shape shape{3, 512};
      const auto from = BlockTensors::empty(shape[0], shape[1], format, host);
      fill_with_finite_blocks(from, shape, host);
      expect_like_cpu({random_tensor(shape, dtype, 1, host), from.bytes}, 0,
                      concat("format ", number, " ", name_of(dtype)),
                      [=](const Tensors& t, const Stream& stream) {
                        dequantize_blocks(t[0], {t[1], format}, stream);
                      });
    }
  }
}

}  // namespace
}  // namespace hybrid_trainer::kernels
