#include "hybrid_trainer/nn/weight.h"

#include <gtest/gtest.h>

#include "hybrid_trainer/core/error.h"
#include "tests/support/test_tensors.h"

namespace hybrid_trainer::testing {
namespace {

/// Master values that bf16 cannot represent.
class LiveWeightTest : public ::testing::Test {
 protected:
  LiveWeightTest() {
    fill(master_, 1.001f);
    weight_.refresh_compute_copy(stream_);
  }
  static void fill(const Tensor& tensor, float value) {
    std::fill_n(tensor.data<float>(), tensor.elements(), value);
  }
  double held(DType dtype) {
    const Tensor values = weight_.acquire(dtype, stream_);
    const double last = values_of(values).back();
    weight_.release(dtype, Use::kRead, stream_);
    return last;
  }
  const Stream home_{MemoryPool::create("host")}, stream_{MemoryPool::create("device")};
  const Tensor master_ = Tensor::empty({4, 3}, DType::kF32, MemoryKind::kMasterWeights, home_);
  LiveWeight weight_{Tensor(master_), stream_};
};

TEST_F(LiveWeightTest, StartsAsDeviceCopyOfMaster) {
  LiveWeight fresh(Tensor(master_), stream_);
  EXPECT_EQ(fresh.compute_dtype(), DType::kF32);
  EXPECT_EQ(values_of(fresh.live()), std::vector<double>(12, 1.001f));
  EXPECT_EQ(fresh.live().pool(), stream_.pool());
  EXPECT_EQ(fresh.master_in_place().raw(), master_.raw());
}

TEST_F(LiveWeightTest, HoldsOneDtypeAndFollowsMaster) {
  fill(master_, 1.001f);
  weight_.refresh_compute_copy(stream_);
  EXPECT_EQ(held(DType::kF32), 1.001f);
  EXPECT_THROW(weight_.acquire(DType::kBF16, stream_), Error);
  weight_.compute_in(DType::kBF16, stream_);
  EXPECT_EQ(weight_.compute_dtype(), DType::kBF16);
  EXPECT_EQ(held(DType::kBF16), 1);
  EXPECT_EQ(held(DType::kF32), 1.001f) << "reads the masters";
  fill(master_, 3.001f);
  weight_.refresh_compute_copy(stream_);
  EXPECT_EQ(held(DType::kBF16), 3);
  weight_.compute_in(DType::kF32, stream_);
  EXPECT_EQ(held(DType::kF32), 3.001f);
}

TEST_F(LiveWeightTest, InexactCopyIsWidened) {
  weight_.compute_in(DType::kBF16, stream_);
  weight_.live().data<BFloat16>()[11] = to_bfloat16(5);
  weight_.set_exact(false);
  EXPECT_EQ(held(DType::kF32), 5);
  weight_.set_exact(true);
  EXPECT_EQ(held(DType::kF32), 1.001f);
}

TEST_F(LiveWeightTest, WidenedCopyIsSharedUntilLastRelease) {
  weight_.compute_in(DType::kBF16, stream_);
  const std::size_t before = stream_.pool()->use().live_total;
  const void* const first = weight_.acquire(DType::kF32, stream_).raw();
  EXPECT_EQ(weight_.acquire(DType::kF32, stream_).raw(), first);
  weight_.release(DType::kF32, Use::kRead, stream_);
  EXPECT_GT(stream_.pool()->use().live_total, before);
  weight_.release(DType::kF32, Use::kRead, stream_);
  EXPECT_EQ(stream_.pool()->use().live_total, before);
}

TEST_F(LiveWeightTest, RefreshesRowsFromGivenMasters) {
  for (const DType dtype : {DType::kF32, DType::kBF16}) {
    weight_.compute_in(dtype, stream_);
    weight_.set_exact(false);
    const Tensor rows = Tensor::empty({2, 3}, DType::kF32, MemoryKind::kMasterWeights, home_);
    fill(rows, 8);
    weight_.refresh_from(rows, stream_, 1);
    const double kept = dtype == DType::kF32 ? 1.001f : 1;
    EXPECT_EQ(values_of(weight_.live()),
              (std::vector<double>{kept, kept, kept, 8, 8, 8, 8, 8, 8, kept, kept, kept}));
    EXPECT_EQ(held(DType::kF32), 1.001f) << "exact values come from the masters";
  }
}

}  // namespace
}  // namespace hybrid_trainer::testing
