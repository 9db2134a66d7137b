// Cross-entropy reads a row of logits only once from device memory if it fits in shared memory.

#include "hybrid_trainer/kernels/loss.h"
#include "tests/cuda/cuda_case.h"
#include "tests/emulation/emulated_device.h"

namespace hybrid_trainer::kernels {
namespace {

class EmulatedLoss : public ::testing::Test {
 protected:
  void TearDown() override {
    emulation::device().sees_launch = nullptr;
    emulation::device().shared_bytes = std::size_t{227} << 10;
  }

  struct Result {
    Tensor losses, logits;
    std::size_t shared_bytes = 0;
  };

  /// Computes the loss of three rows of 3,000 logits with a stride of 3,008.
  static Result run(DType dtype, float gradient_scale, std::size_t device_bytes) {
    const Stream host = cpu_stream();
    Result result;
    emulation::device().shared_bytes = device_bytes;
    emulation::device().sees_launch = [&](const std::string&, const cuda::Grid& grid) {
      result.shared_bytes = grid.shared_bytes;
    };
    const Stream stream = cuda_stream();
    const Tensors t =
        copies_to({random_tensor({3}, DType::kF32, 1, host),
                   random_tensor({3, 3008}, dtype, 2, host, 4), random_ids({3}, 3000, 3, host)},
                  stream);
    softmax_cross_entropy(t[0], t[1], t[2], 3000, gradient_scale, stream);
    result.losses = wait_for_host(t[0], stream);
    result.logits = wait_for_host(t[1], stream);
    return result;
  }
};

TEST_F(EmulatedLoss, KeepsRowInSharedMemoryIfItFits) {
  for (DType dtype : {DType::kF32, DType::kBF16}) {
    const std::size_t row = 3008 * size_of(dtype);
    EXPECT_EQ(run(dtype, 0.5f, row + 1024).shared_bytes, row);
    EXPECT_EQ(run(dtype, 0.5f, row).shared_bytes, 0u)
        << "sums over the block need shared memory too";
    EXPECT_EQ(run(dtype, 0.0f, row + 1024).shared_bytes, 0u)
        << "a loss without gradient always reads once";
  }
}

TEST_F(EmulatedLoss, LittleSharedMemoryGivesSameBits) {
  for (DType dtype : {DType::kF32, DType::kBF16}) {
    const Result kept = run(dtype, 0.5f, std::size_t{227} << 10);
    const Result read_twice = run(dtype, 0.5f, 1024);
    expect_same_bits(kept.losses, read_twice.losses);
    expect_same_bits(kept.logits, read_twice.logits);
  }
}

}  // namespace
}  // namespace hybrid_trainer::kernels
