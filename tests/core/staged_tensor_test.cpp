#include "hybrid_trainer/core/tensor.h"

#include <gtest/gtest.h>

#include <stdexcept>

#include "hybrid_trainer/core/error.h"
#include "tests/support/failing_memory.h"

namespace hybrid_trainer {
namespace {

class StagedTensorTest : public ::testing::Test {
 protected:
  Tensor tensor(float value) {
    const Tensor made = Tensor::empty({3}, DType::kF32, MemoryKind::kOptimizerState, elsewhere_);
    std::fill_n(made.data<float>(), 3, value);
    return made;
  }
  bool fails_ = false;
  Stream elsewhere_{testing::failing_pool(fails_)};
  Stream stream_{MemoryPool::create("device")};
};

TEST_F(StagedTensorTest, CopiesInAndWritesChangesBack) {
  const Tensor there = tensor(1);
  for (const Use use : {Use::kRead, Use::kChange, Use::kWrite}) {
    const float before = there.data<float>()[2];
    {
      const StagedTensor staged(there, use, stream_, true);
      const Tensor& here = staged;
      EXPECT_EQ(here.pool(), stream_.pool());
      if (use != Use::kWrite) {
        EXPECT_EQ(here.data<float>()[2], before);
      }
      std::fill_n(here.data<float>(), 3, before + 1);
    }
    EXPECT_EQ(there.data<float>()[2], use == Use::kRead ? before : before + 1);
  }
}

TEST_F(StagedTensorTest, AliasesTensorOnSameDevice) {
  const Tensor there = tensor(1);
  const StagedTensor staged(there, Use::kChange, stream_);
  const Tensor& here = staged;
  EXPECT_EQ(here.raw(), there.raw());
  const Tensor nothing;
  const StagedTensor of_nothing(nothing, Use::kChange, stream_, true);
  EXPECT_FALSE(static_cast<const Tensor&>(of_nothing));
}

/// If the destructor could not throw, a full disk would terminate the process silently.
TEST_F(StagedTensorTest, FailedWriteBackThrows) {
  const Tensor there = tensor(1);
  const auto change = [&] {
    const StagedTensor staged(there, Use::kChange, stream_, true);
    fails_ = true;
  };
  EXPECT_THROW(change(), IoError);
}

TEST_F(StagedTensorTest, FirstErrorIsReported) {
  const Tensor there = tensor(1);
  const auto change = [&] {
    const StagedTensor staged(there, Use::kChange, stream_, true);
    fails_ = true;
    throw std::domain_error("the first");
  };
  EXPECT_THROW(change(), std::domain_error);
}

}  // namespace
}  // namespace hybrid_trainer
