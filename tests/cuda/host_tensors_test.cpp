#include "hybrid_trainer/generation/cached_decoder.h"

#include "hybrid_trainer/core/memory_pool.h"
#include "tests/cuda/cuda_case.h"

namespace hybrid_trainer {
namespace {

/// Each token's logits are copied through reused memory, because pinning takes longer than copying.
TEST(CudaHostTensors, CopiesReusePinnedMemory) {
  const Stream stream = cuda_stream(), host(make_host_pool(stream.device()));
  const Tensor logits = kernels::random_tensor({3, 5'000}, DType::kBF16, 1, kernels::cpu_stream());
  const Tensor there = copy_to(logits, stream);
  std::size_t fresh = 0;
  for (int token = 0; token < 3; ++token) {
    const Tensor found = host_f32(there, host, stream);
    EXPECT_TRUE(found.pinned());
    kernels::expect_close(found, kernels::values_of(logits), 0);
    if (token == 0) fresh = host.pool()->use().fresh_total;
  }
  EXPECT_EQ(host.pool()->use().fresh_total, fresh);
}

}  // namespace
}  // namespace hybrid_trainer
