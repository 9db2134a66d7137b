#include "hybrid_trainer/kernels/weight_blocks.h"

#include "tests/cuda/cuda_case.h"

namespace hybrid_trainer::kernels {
namespace {

TEST(CudaWeightBlocks, HaveTheBitsOfTheProcessors) {
  const Stream host = cpu_stream();
  for (int number = 0; number < kBlockFormats; ++number) {
    const auto format = static_cast<BlockFormat>(number);
    for (const DType dtype : kRealTypes) {
      const Shape shape{3, 512};
      const auto from = BlockTensors::empty(shape[0], shape[1], format, host);
      for (std::int64_t i = 0; i < from.bytes.elements(); ++i)  // all scales of f16 are finite
        from.bytes.data<std::uint8_t>()[i] = static_cast<std::uint8_t>(
            random_below({7, 0, 0}, static_cast<std::uint64_t>(i), 256) & 0xBB);
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
