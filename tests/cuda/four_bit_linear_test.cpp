#include "kernels/quantized/quantization.h"

#include "tests/cuda/cuda_case.h"

namespace hybrid_trainer::kernels {
namespace {

Tensor random_bytes(std::int64_t count, std::uint64_t seed, const Stream& stream) {
  const Tensor tensor = Tensor::empty({count}, DType::kU8, MemoryKind::kParameters, stream);
  for (std::int64_t i = 0; i < count; ++i)
    tensor.data<std::uint8_t>()[i] =
        static_cast<std::uint8_t>(random_word({seed}, static_cast<std::uint64_t>(i)));
  return tensor;
}

/// y, x, bias and residual, then codes, levels and scales of `count` rows of w.
Tensors product_tensors(std::int64_t rows, std::int64_t inputs, std::int64_t outputs,
                        std::int64_t count, bool has_levels, DType dtype) {
  const Stream host = cpu_stream();
  const std::int64_t blocks = count * inputs / kFourBitBlock;
  const std::int64_t scales =
      has_levels ? (blocks + kFourBitLevelBlock - 1) / kFourBitLevelBlock : blocks;
  return {random_tensor({rows, outputs}, dtype, 1, host),
          random_tensor({rows, inputs}, dtype, 2, host, 0.2),
          random_tensor({outputs}, DType::kF32, 3, host),
          random_tensor({rows, outputs}, dtype, 4, host),
          random_bytes(count * inputs / 2, 5, host),
          has_levels ? random_bytes(blocks, 6, host) : Tensor{},
          random_tensor({scales}, DType::kF32, 7, host)};
}

TEST(CudaFourBitLinear, MatchesCpu) {
  for (const DType dtype : kRealTypes) {
    for (const std::int64_t rows : {1, 2, 3, 8, 11}) {
      for (const std::int64_t inputs : {64, 1'088}) {
        expect_like_cpu(product_tensors(rows, inputs, 9, 6, true, dtype), tolerance_of(dtype),
                        concat(rows, " rows of ", inputs, " ", name_of(dtype)),
                        [](const Tensors& t, const Stream& s) {
                          const FourBitTensors w{t[4], t[5], t[6], 0.1f};
                          four_bit_linear(t[0], t[1], {w, 2, 6}, t[2], t[3], s);
                        });
      }
    }
    expect_like_cpu(product_tensors(2, 128, 3, 3, false, dtype), tolerance_of(dtype), "alone",
                    [](const Tensors& t, const Stream& s) {
                      const FourBitTensors w{t[4], {}, t[6], 0, FourBitType::kFloat};
                      four_bit_linear(t[0], t[1], {w, 0, 3}, Tensor{}, Tensor{}, s);
                    });
  }
}

TEST(CudaFourBitLinear, RowBitsDoNotDependOnOtherRows) {
  const Stream stream = cuda_stream();
  const Tensors t = copies_to(product_tensors(11, 320, 5, 5, true, DType::kBF16), stream);
  const FourBitTensors w{t[4], t[5], t[6], 0.1f};
  const auto product = [&](std::int64_t begin, std::int64_t end) {
    const Tensor y = Tensor::empty({end - begin, 5}, DType::kBF16, MemoryKind::kLogits, stream);
    four_bit_linear(y, t[1].rows(begin, end), {w, 0, 5}, t[2], Tensor{}, stream);
    return wait_for_host(y, stream);
  };
  const Tensor together = product(0, 11);
  for (std::int64_t row = 0; row < 11; ++row)
    expect_same_bits(product(row, row + 1), together.rows(row, row + 1));
}

TEST(CudaFourBitLinear, PropagatesNaN) {
  const Stream host = cpu_stream(), stream = cuda_stream();
  Tensors t = product_tensors(2, 64, 3, 3, false, DType::kF32);
  t[1].data<float>()[70] = std::numeric_limits<float>::quiet_NaN();
  t[6].data<float>()[2] = std::numeric_limits<float>::quiet_NaN();
  t = copies_to(t, stream);
  four_bit_linear(t[0], t[1], {{t[4], {}, t[6]}, 0, 3}, Tensor{}, Tensor{}, stream);
  const Values y = values_of(wait_for_host(t[0], stream));
  for (std::size_t i = 0; i < 6; ++i)
    EXPECT_EQ(std::isnan(y[i]), i == 2 || i >= 3) << "first row: output 2; second row: all outputs";
}

}  // namespace
}  // namespace hybrid_trainer::kernels
