#include "hybrid_trainer/kernels/matmul.h"

#include <limits>

#include "kernels/products/weight_decomposition.h"
#include "kernels/quantized/quantization.h"
#include "tests/cuda/cuda_case.h"

namespace hybrid_trainer::kernels {
namespace {

TEST(CudaDiagonalBlocks, SpreadAndGatherMatchCpu) {
  const Stream host = cpu_stream();
  const DiagonalBlocks blocks{.count = 3, .rank = 3, .first_row = {0, 4, 9}, .rows = {3, 5, 1}};
  for (const DType dtype : kRealTypes) {
    expect_like_cpu(
        {random_tensor({11, 9}, dtype, 1, host), random_tensor({9, 3}, DType::kF32, 2, host)}, 0,
        name_of(dtype),
        [&](const Tensors& t, const Stream& s) { spread_blocks(t[0], t[1], blocks, 0.7f, s); });
  }
  for (const GradientMode mode : {GradientMode::kOverwrite, GradientMode::kAccumulate}) {
    expect_like_cpu(
        {random_tensor({9, 3}, DType::kF32, 1, host), random_tensor({11, 9}, DType::kF32, 2, host)},
        1e-6, "gather", [&](const Tensors& t, const Stream& s) {
          gather_blocks(t[0], t[1], blocks, 0.7f, mode, s);
        });
  }
}

TEST(CudaWeightDecomposition, MatchesCpu) {
  const Stream host = cpu_stream();
  const DiagonalBlocks blocks{.count = 2, .rank = 1, .first_row = {1, 7}, .rows = {3, 2}};
  const auto f32 = [&](const Shape& shape, std::uint64_t seed) {
    return random_tensor(shape, DType::kF32, seed, host);
  };
  expect_like_cpu({f32({10}, 1), f32({10, 300}, 2)}, 1e-6, "norms",
                  [](const Tensors& t, const Stream& s) { row_norms(t[0], t[1], s); });
  expect_like_cpu(
      {f32({10}, 1), f32({5}, 2), f32({10}, 3)}, 0, "factors",
      [&](const Tensors& t, const Stream& s) { magnitude_factors(t[0], t[1], t[2], blocks, s); });
  for (const GradientMode mode : {GradientMode::kOverwrite, GradientMode::kAccumulate}) {
    expect_like_cpu({f32({5}, 1), f32({10}, 2), f32({10}, 3)}, 1e-6, "gather",
                    [&](const Tensors& t, const Stream& s) {
                      gather_rows(t[0], t[1], t[2], blocks, mode, s);
                      gather_rows(t[0], t[1], Tensor{}, blocks, mode, s);
                    });
  }
  for (const DType dtype : kRealTypes) {
    expect_like_cpu({random_tensor({7, 10}, dtype, 1, host), random_tensor({7, 10}, dtype, 2, host),
                     f32({10}, 3), f32({10}, 4), random_tensor({7, 10}, dtype, 5, host)},
                    tolerance_of(dtype), name_of(dtype), [](const Tensors& t, const Stream& s) {
                      scale_columns(t[0], t[1], t[2], t[3], t[4], s);
                      scale_columns(t[1], t[1], t[2], Tensor{}, Tensor{}, s);
                      multiply(t[4], t[0], t[1], s);
                    });
  }
}

TEST(CudaFourBit, DequantizeMatchesCpu) {
  const Stream host = cpu_stream();
  const auto bytes = [&](std::int64_t count, std::uint64_t seed) {
    const Tensor tensor = Tensor::empty({count}, DType::kU8, MemoryKind::kParameters, host);
    for (std::int64_t i = 0; i < count; ++i)
      tensor.data<std::uint8_t>()[i] =
          static_cast<std::uint8_t>(random_word({seed}, static_cast<std::uint64_t>(i)));
    return tensor;
  };
  for (const DType dtype : kRealTypes) {
    for (const std::int64_t count : {1, 64, 65, 16'900}) {
      const std::int64_t blocks = (count + 63) / 64, groups = (blocks + 255) / 256;
      expect_like_cpu({random_tensor({count}, dtype, 1, host), bytes((count + 1) / 2, 2),
                       bytes(blocks, 3), random_tensor({groups}, DType::kF32, 4, host)},
                      0, concat(count, " ", name_of(dtype)), [](const Tensors& t, const Stream& s) {
                        dequantize_four_bit(t[0], {t[1], t[2], t[3], 0.3f}, s);
                      });
      expect_like_cpu({random_tensor({count}, dtype, 1, host), bytes((count + 1) / 2, 2),
                       random_tensor({blocks}, DType::kF32, 4, host)},
                      0, concat("fp4 ", count, " ", name_of(dtype)),
                      [](const Tensors& t, const Stream& s) {
                        dequantize_four_bit(t[0], {t[1], {}, t[2], 0, FourBitType::kFloat}, s);
                      });
    }
  }
}

/// Values misaligned by 2 bytes, which rules out vector stores.
TEST(CudaFourBit, MisalignedDequantizeMatchesCpu) {
  const Stream host = cpu_stream();
  const Tensors tensors{random_tensor({131}, DType::kBF16, 1, host),
                        Tensor::zeros({65}, DType::kU8, MemoryKind::kParameters, host),
                        random_tensor({3}, DType::kF32, 2, host)};
  for (std::uint8_t i = 0; i < 65; ++i)
    tensors[1].data<std::uint8_t>()[i] = static_cast<std::uint8_t>(37 * i);
  expect_like_cpu(tensors, 0, "misaligned", [](const Tensors& t, const Stream& s) {
    dequantize_four_bit(t[0].rows(1, 131), {t[1], {}, t[2]}, s);
  });
}

TEST(CudaFourBit, QuantizeMatchesCpuBitForBit) {
  const Stream host = cpu_stream();
  for (const std::int64_t count : {1, 64, 65, 16'900}) {
    const Tensor x = random_tensor({count}, DType::kF32, 1, host);
    for (std::int64_t i = 64; i < std::min<std::int64_t>(count, 128); ++i) x.data<float>()[i] = 0;
    if (count > 300) {
      x.data<float>()[150] = std::numeric_limits<float>::quiet_NaN();
      x.data<float>()[200] = std::numeric_limits<float>::infinity();
      for (int i = 256; i < 320; ++i) x.data<float>()[i] *= 1e-39f;
    }
    const FourBitTensors wanted{
        Tensor::zeros({(count + 1) / 2}, DType::kU8, MemoryKind::kWorkspace, host),
        {},
        Tensor::zeros({(count + 63) / 64}, DType::kF32, MemoryKind::kWorkspace, host)};
    quantize_four_bit(wanted, x, host);
    in_several_orders([&] {
      const Stream stream = cuda_stream();
      const FourBitTensors got{copy_to(wanted.codes, stream), {}, copy_to(wanted.scales, stream)};
      fill_zero(got.codes, stream);
      fill_zero(got.scales, stream);
      quantize_four_bit(got, copy_to(x, stream), stream);
      expect_same_bits(wait_for_host(got.codes, stream), wanted.codes);
      expect_same_bits(wait_for_host(got.scales, stream), wanted.scales);
    });
  }
}

TEST(CudaEightBit, DequantizeMatchesCpu) {
  const Stream host = cpu_stream();
  const Tensor codes = Tensor::empty({13, 70}, DType::kI8, MemoryKind::kParameters, host);
  for (std::int64_t i = 0; i < codes.elements(); ++i)
    codes.data<std::int8_t>()[i] = static_cast<std::int8_t>(i % 255 - 127);
  for (const DType dtype : kRealTypes) {
    expect_like_cpu(
        {random_tensor({13, 70}, dtype, 1, host), codes, random_tensor({13}, DType::kF32, 2, host)},
        0, name_of(dtype), [](const Tensors& t, const Stream& s) {
          dequantize_eight_bit(t[0], {t[1], t[2]}, s);
        });
  }
}

}  // namespace
}  // namespace hybrid_trainer::kernels
