// Tiles of tensor core attention are laid out so that loading matrices has no bank conflicts.

#include "hybrid_trainer/kernels/attention.h"
#include "kernels/backend/tensor_core.cuh"
#include "tests/cuda/cuda_case.h"

namespace hybrid_trainer::kernels {
namespace {

TEST(EmulatedTensorCore, AttentionTilesHaveNoBankConflicts) {
  const Stream stream = cuda_stream();
  for (const auto& [batch, head_size] : {std::pair{1, 64}, {4, 64}, {1, 128}, {1, 256}}) {
    const auto empty = [&](const Shape& shape, DType dtype) {
      return Tensor::zeros(shape, dtype, MemoryKind::kActivations, stream);
    };
    const Tensor qkv = empty({batch, 66, 3 * head_size}, DType::kBF16);
    const Tensor y = empty({batch, 66, head_size}, DType::kBF16);
    const Tensor log_sum_exp = empty({batch, 1, 66}, DType::kF32);
    emulation::bank_conflicts() = 0;
    attention_forward(y, log_sum_exp, qkv, Tensor(), 1, stream);
    attention_backward(qkv, y, y, log_sum_exp, qkv, Tensor(), 1, stream);
    stream.synchronize();
    EXPECT_EQ(emulation::bank_conflicts(), 0) << batch << " of " << head_size;
  }
}

}  // namespace
}  // namespace hybrid_trainer::kernels
