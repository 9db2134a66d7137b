#include "memory/stored_offload.h"

#include <gtest/gtest.h>

#include <cmath>
#include <cstring>

#include "tests/support/parameters.h"

namespace hybrid_trainer {
namespace {

using testing::clone;

class CompressedStoreTest : public ::testing::Test {
 protected:
  CompressedStoreTest() {
    tensors_ = {testing::normal_tensor({300, 70}, 1, stream_, 1e-3f),
                testing::normal_tensor({300, 70}, 2, stream_, 1e-3f),
                Tensor::zeros({5}, DType::kU8, MemoryKind::kOptimizerState, stream_)};
    for (std::int64_t i = 0; i < tensors_[1].elements(); ++i) {
      float& x = tensors_[1].data<float>()[i];
      x *= x;
    }
    std::memset(tensors_[2].raw(), 77, 5);
  }
  std::vector<OffloadSlot> slots() {
    return {{"m", &tensors_[0]},
            {"v", &tensors_[1], SlotRounding::kNonNegative},
            {"codes", &tensors_[2]}};
  }
  /// Stores the tensors and returns the restored ones.
  std::vector<Tensor> there_and_back() {
    CompressedStore store;
    store.keep(slots(), stream_);
    std::vector<Tensor> back;
    for (const Tensor& tensor : tensors_)
      back.push_back(Tensor::empty_like(tensor, MemoryKind::kOptimizerState, stream_));
    store.write_to(back, stream_);
    return back;
  }
  const Stream stream_{MemoryPool::create("device")};
  std::vector<Tensor> tensors_;
};

TEST_F(CompressedStoreTest, RoundsWithinBoundAndKeepsSquaresPositive) {
  const std::vector<Tensor> back = there_and_back();
  const double bounds[] = {0.0071, 0.0036};
  for (std::size_t t = 0; t < 2; ++t) {
    const float* const x = tensors_[t].data<float>();
    const float* const y = back[t].data<float>();
    bool rounded = false;
    for (std::int64_t begin = 0; begin < tensors_[t].elements(); begin += 256) {
      const std::int64_t end = std::min(begin + 256, tensors_[t].elements());
      double largest = 0;
      for (std::int64_t i = begin; i < end; ++i)
        largest = std::max(largest, std::abs(static_cast<double>(x[i])));
      for (std::int64_t i = begin; i < end; ++i) {
        ASSERT_NEAR(y[i], x[i], bounds[t] * largest) << i;
        rounded = rounded || y[i] != x[i];
        ASSERT_TRUE(t == 0 || x[i] == 0 || y[i] > 0) << i;
      }
    }
    EXPECT_TRUE(rounded);
  }
  EXPECT_TRUE(testing::same_bits(back[2], tensors_[2]));
}

/// The scales of an 8-bit state span many decades. Rounding them relative to the largest would
/// change small scales, and all codes of their blocks, by a factor.
TEST_F(CompressedStoreTest, UnroundedSlotKeepsBits) {
  Tensor scales = Tensor::empty({256}, DType::kF32, MemoryKind::kOptimizerState, stream_);
  for (int i = 0; i < 256; ++i)
    scales.data<float>()[i] = std::pow(10.0f, -static_cast<float>(i % 13));
  const Tensor before = clone(scales, stream_);
  CompressedStore store;
  store.keep({{"v.scales", &scales, SlotRounding::kNone}}, stream_);
  const Tensor back = Tensor::empty_like(scales, MemoryKind::kOptimizerState, stream_);
  store.write_to({back}, stream_);
  EXPECT_TRUE(testing::same_bits(back, before));
}

TEST_F(CompressedStoreTest, PreservesNaN) {
  tensors_[0].data<float>()[300] = NAN;
  const Tensor back = there_and_back()[0];
  EXPECT_TRUE(std::isnan(back.data<float>()[300]));
  EXPECT_FALSE(std::isnan(back.data<float>()[0]));
}

TEST(CompressedStore, OutOfMemoryLeavesNothingAllocated) {
  const Stream stream(MemoryPool::create("device", std::size_t{1} << 20));
  Tensor tensor = Tensor::zeros({250000}, DType::kF32, MemoryKind::kOptimizerState, stream);
  const std::size_t live = stream.pool()->use().live_total;
  CompressedStore store;
  EXPECT_THROW(store.keep({{"m", &tensor}}, stream), OutOfMemory);
  EXPECT_EQ(stream.pool()->use().live_total, live);
}

}  // namespace
}  // namespace hybrid_trainer
