// Backward computes scores once if there are many heads, twice if few, to fill the device.

#include "hybrid_trainer/kernels/attention.h"
#include "kernels/backend/tensor_core.cuh"
#include "tests/cuda/cuda_case.h"

namespace hybrid_trainer::kernels {
namespace {

TEST(EmulatedTensorCore, AttentionBackwardOfManyHeadsSavesProducts) {
  const Stream stream = cuda_stream(), host = cpu_stream();
  constexpr std::int64_t kBatch = 3, kLength = 256, kHead = 64;
  const auto random = [&](const Shape& shape, DType dtype, std::uint64_t seed) {
    return copy_to(random_tensor(shape, dtype, seed, host), stream);
  };
  const Tensor qkv = random({kBatch, kLength, 3 * kHead}, DType::kBF16, 1);
  const Tensor dy = random({kBatch, kLength, kHead}, DType::kBF16, 2);
  const Tensor y = random(dy.shape(), DType::kBF16, 3);
  const Tensor log_sum_exp = random({kBatch, 1, kLength}, DType::kF32, 4);
  attention_forward(y, log_sum_exp, qkv, Tensor(), 1, stream);
  const auto products = [&](const Tensor& dqkv, std::int64_t begin, std::int64_t end) {
    stream.synchronize();
    emulation::multiply_adds() = 0;
    attention_backward(dqkv.rows(begin, end), dy.rows(begin, end), y.rows(begin, end),
                       log_sum_exp.rows(begin, end), qkv.rows(begin, end), Tensor(), 1, stream);
    stream.synchronize();
    return emulation::multiply_adds();
  };
  const Tensor together = random(qkv.shape(), DType::kBF16, 5);
  const Tensor alone = random(qkv.shape(), DType::kBF16, 6);
  const std::int64_t of_many = products(together, 0, kBatch);
  std::int64_t of_few = 0;
  for (std::int64_t b = 0; b < kBatch; ++b) of_few += products(alone, b, b + 1);
  EXPECT_LT(4 * of_many, 3 * of_few);
  expect_same_bits(wait_for_host(together, stream), wait_for_host(alone, stream));
}

TEST(EmulatedTensorCore, AttentionSkipsHiddenPatternBlocks) {
  const Stream stream = cuda_stream(), host = cpu_stream();
  const auto random = [&](const Shape& shape, DType dtype) {
    return copy_to(random_tensor(shape, dtype, 1, host), stream);
  };
  const Tensor qkv = random({1, 320, 192}, DType::kBF16), dqkv = random(qkv.shape(), DType::kBF16),
               y = random({1, 320, 64}, DType::kBF16), dy = random(y.shape(), DType::kBF16),
               log_sum_exp = random({1, 1, 320}, DType::kF32);
  const auto products = [&](const AttentionSpec& spec) {
    stream.synchronize();
    emulation::multiply_adds() = 0;
    attention_forward(y, log_sum_exp, qkv, Tensor(), spec, stream);
    attention_backward(dqkv, dy, y, log_sum_exp, qkv, Tensor(), spec, stream);
    stream.synchronize();
    return emulation::multiply_adds();
  };
  AttentionSpec own_blocks(1);
  own_blocks.pattern.block = 64;
  // 5 pairs of blocks instead of 15, each without the tiles and parts above the diagonal.
  EXPECT_LT(2 * products(own_blocks), products(AttentionSpec(1)));
}

}  // namespace
}  // namespace hybrid_trainer::kernels
