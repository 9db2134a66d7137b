#include "kernels/quantized/quantization.h"

#include "tests/kernels/kernel_case.h"

namespace hybrid_trainer::kernels {
namespace {

class FourBitLinear : public ::testing::Test {
 protected:
  FourBitLinear() { quantize_four_bit(codes_, weights_, stream_); }
  Tensor empty(std::int64_t count, DType dtype) const {
    return Tensor::empty({count}, dtype, MemoryKind::kWorkspace, stream_);
  }
  const Stream stream_ = cpu_stream();
  const Tensor weights_ = random_tensor({4, 128}, DType::kF32, 1, stream_);
  const FourBitTensors codes_{empty(256, DType::kU8), {}, empty(8, DType::kF32)};
  const Tensor x_ = random_tensor({3, 128}, DType::kF32, 2, stream_);
};

TEST_F(FourBitLinear, MatchesProductOfDequantizedWeight) {
  const Tensor bias = random_tensor({6}, DType::kF32, 3, stream_);
  const Tensor y = random_tensor({3, 6}, DType::kF32, 4, stream_);
  const Values before = values_of(y);
  const Tensor residual = random_tensor({3, 6}, DType::kF32, 5, stream_);
  four_bit_linear(y, x_, {codes_, 1, 4}, bias, residual, stream_);
  const Tensor values = Tensor::empty_like(weights_, MemoryKind::kWorkspace, stream_);
  dequantize_four_bit(values, codes_, stream_);
  const Values w = values_of(values), x = values_of(x_), added = values_of(bias),
               more = values_of(residual);
  Values wanted = before;
  for (std::size_t n = 0; n < 3; ++n) {
    for (std::size_t o = 1; o < 5; ++o) {
      double sum = added[o] + more[n * 6 + o];
      for (std::size_t i = 0; i < 128; ++i) sum += x[n * 128 + i] * w[(o - 1) * 128 + i];
      wanted[n * 6 + o] = sum;
    }
  }
  expect_close(y, wanted, 1e-5);
}

TEST_F(FourBitLinear, RefusesPartialBlocksAndExtraRows) {
  const Tensor x = random_tensor({3, 96}, DType::kF32, 2, stream_);
  const Tensor y = random_tensor({3, 4}, DType::kF32, 4, stream_);
  EXPECT_THROW(four_bit_linear(y, x, {codes_, 0, 4}, Tensor{}, Tensor{}, stream_), ShapeMismatch);
  EXPECT_THROW(four_bit_linear(y, x_, {codes_, 1, 4}, Tensor{}, Tensor{}, stream_), ShapeMismatch);
}

}  // namespace
}  // namespace hybrid_trainer::kernels
