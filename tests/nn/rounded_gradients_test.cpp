#include "hybrid_trainer/nn/gradient_sink.h"

#include <gtest/gtest.h>

#include "hybrid_trainer/core/memory_pool.h"
#include "hybrid_trainer/kernels/elementwise.h"
#include "hybrid_trainer/nn/parameter.h"
#include "tests/support/parameters.h"

namespace hybrid_trainer {
namespace {

using testing::normal_tensor;
using testing::same_bits;

class RoundedGradient : public ::testing::Test {
 protected:
  Tensor rounded(const Tensor& exact) const {
    const Tensor result =
        Tensor::empty(exact.shape(), DType::kBF16, MemoryKind::kWorkspace, stream_);
    kernels::cast(result, exact, stream_);
    return result;
  }
  Tensor widened(const Tensor& tensor) const {
    const Tensor result =
        Tensor::empty(tensor.shape(), DType::kF32, MemoryKind::kWorkspace, stream_);
    kernels::cast(result, tensor, stream_);
    return result;
  }
  Stream stream_{MemoryPool::create("device")};
  Parameter matrix_{"matrix", {5, 6}, Role::kMatrix, stream_};
  Parameter vector_{"vector", {6}, Role::kVector, stream_};
  int waits_ = 0;
  RoundedGradients sink_{[this] { ++waits_; }};
};

TEST_F(RoundedGradient, IsRoundedAfterEachContribution) {
  sink_.allocate({&matrix_, &vector_}, stream_);
  begin_gradients({&matrix_, &vector_}, sink_, 2);
  const Tensor first = normal_tensor({5, 6}, 1, stream_),
               second = normal_tensor({5, 6}, 2, stream_);
  const auto add = [&](const Tensor& what) {
    GradientContribution to(matrix_, stream_);
    ASSERT_EQ(to.gradient().dtype(), DType::kF32);
    if (to.next_mode() == kernels::GradientMode::kOverwrite) {
      copy(to.gradient(), what, stream_);
    } else {
      kernels::axpy(to.gradient(), to.gradient(), 1, what, stream_);
    }
  };
  add(first);
  EXPECT_TRUE(same_bits(matrix_.gradient(), rounded(first)));
  add(second);
  const Tensor sum = widened(rounded(first));
  kernels::axpy(sum, sum, 1, second, stream_);
  EXPECT_TRUE(same_bits(matrix_.gradient(), rounded(sum)));
  EXPECT_EQ(waits_, 2);
}

TEST_F(RoundedGradient, Bf16ContributionIsWrittenInPlace) {
  sink_.allocate({&matrix_, &vector_}, stream_);
  begin_gradients({&matrix_, &vector_}, sink_, 1);
  {
    const GradientContribution to(matrix_, stream_, true, DType::kBF16);
    EXPECT_EQ(to.gradient().raw(), sink_.gradient(matrix_).raw());
    EXPECT_EQ(waits_, 1);
  }
  const GradientContribution to(vector_, stream_, true, DType::kBF16);
  EXPECT_EQ(to.gradient().dtype(), DType::kF32);
}

TEST_F(RoundedGradient, UsesHalfMemoryAndNoneAfterFree) {
  sink_.allocate({&matrix_, &vector_}, stream_);
  EXPECT_EQ(sink_.gradient(matrix_).bytes(), 60u);
  EXPECT_EQ(sink_.gradient(vector_).bytes(), 24u);
  sink_.free();
  EXPECT_FALSE(sink_.gradient(matrix_));
}

}  // namespace
}  // namespace hybrid_trainer
