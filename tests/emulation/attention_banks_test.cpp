// The tiles of attention on the tensor cores are laid out so that no read of matrices meets a bank
// twice.

#include "hybrid_trainer/kernels/attention.h"
#include "kernels/cuda/tensor_core.cuh"
#include "tests/cuda/cuda_case.h"

namespace hybrid_trainer::kernels {
namespace {

TEST(EmulatedTensorCore, AttentionReadsItsTilesWithoutBankConflicts) {
  const Stream stream = cuda_stream();
  for (const std::int64_t head_size : {64, 128}) {
    const auto empty = [&](const Shape& shape, DType dtype) {
      return Tensor::zeros(shape, dtype, MemoryKind::kActivations, stream);
    };
    const Tensor qkv = empty({1, 66, 3 * head_size}, DType::kBF16);
    const Tensor y = empty({1, 66, head_size}, DType::kBF16);
    const Tensor log_sum_exp = empty({1, 1, 66}, DType::kF32);
    emulation::bank_conflicts() = 0;
    attention_forward(y, log_sum_exp, qkv, Tensor(), 1, stream);
    attention_backward(qkv, y, y, log_sum_exp, qkv, Tensor(), 1, stream);
    stream.synchronize();
    EXPECT_EQ(emulation::bank_conflicts(), 0) << head_size;
  }
}

}  // namespace
}  // namespace hybrid_trainer::kernels
