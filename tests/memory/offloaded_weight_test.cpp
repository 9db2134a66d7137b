#include "memory/offloaded_weights.h"

#include <gtest/gtest.h>

#include "hybrid_trainer/core/error.h"
#include "src/core/prefetcher.h"
#include "tests/support/failing_memory.h"
#include "tests/support/test_tensors.h"

namespace hybrid_trainer {
namespace {

class AwayWeightTest : public ::testing::TestWithParam<Copies> {
 protected:
  Weight held(Use use) { return {weight_, DType::kF32, use, stream_}; }
  void add_one() {
    const Weight values = held(Use::kChange);
    for (int i = 0; i < 3; ++i) values.tensor().data<float>()[i] += 1;
  }
  bool fails_ = false;
  Stream home_{testing::failing_pool(fails_)};
  Stream stream_{MemoryPool::create("device")};
  OffloadedWeight weight_{Tensor::zeros({3}, DType::kF32, MemoryKind::kParameters, home_),
                          std::make_shared<Prefetcher>(GetParam())};
};
INSTANTIATE_TEST_SUITE_P(All, AwayWeightTest,
                         ::testing::Values(Copies::kInBackground, Copies::kInStream));

TEST_P(AwayWeightTest, LoadsToDeviceAndWritesChangesBack) {
  {
    const Weight outer = held(Use::kRead);
    EXPECT_EQ(outer.tensor().pool(), stream_.pool());
    EXPECT_EQ(outer.tensor().data<float>()[2], 0);
    add_one();
    EXPECT_EQ(outer.tensor().data<float>()[2], 1) << "all holders share one copy";
  }
  EXPECT_EQ(weight_.master_in_place().data<float>()[2], 1);
  EXPECT_EQ(stream_.pool()->use().live_total, 0u);
}

/// The update is lost, so the stale value must not be trained on or saved.
TEST_P(AwayWeightTest, FailedWriteBackThrowsOnLaterAccess) {
  fails_ = true;
  add_one();
  EXPECT_THROW(weight_.master_in_place(), IoError);
  fails_ = false;
  EXPECT_THROW(static_cast<void>(held(Use::kRead)), IoError);
  EXPECT_THROW(weight_.master_in_place(), IoError);
}

/// A master with a bf16 copy counts as a master weight, without a copy as a parameter.
TEST_P(AwayWeightTest, KeepsBf16CopyForBf16Compute) {
  const auto at_home = [&](MemoryKind kind) {
    return home_.pool()->use().live[static_cast<std::size_t>(kind)];
  };
  const std::size_t masters = at_home(MemoryKind::kParameters);
  add_one();
  for (int i = 0; i < 2; ++i) {
    weight_.compute_in(DType::kBF16, stream_);
    EXPECT_EQ(weight_.compute_dtype(), DType::kBF16);
    EXPECT_EQ(at_home(MemoryKind::kMasterWeights), masters);
    EXPECT_GT(at_home(MemoryKind::kParameters), 0u);
    const Weight copy(weight_, DType::kBF16, Use::kRead, stream_);
    EXPECT_EQ(testing::values_of(copy.tensor())[2], 1);
  }
  weight_.compute_in(DType::kF32, stream_);
  EXPECT_EQ(weight_.compute_dtype(), DType::kF32);
  EXPECT_EQ(at_home(MemoryKind::kMasterWeights), 0u);
  EXPECT_EQ(at_home(MemoryKind::kParameters), masters);
}

}  // namespace
}  // namespace hybrid_trainer
