#include "memory/weight_copies.h"

#include <gtest/gtest.h>

#include "hybrid_trainer/core/error.h"
#include "tests/memory/content.h"

namespace hybrid_trainer {
namespace {

using testing::Content;

class WeightSnapshotTest : public ::testing::Test {
 protected:
  Stream device_{MemoryPool::create("device")};
  std::shared_ptr<MemoryPool> host_ = MemoryPool::create("host");
  Content content_{device_};
  std::vector<Parameter> parameters_ = parameters_of(content_);
  WeightSnapshot snapshot_{host_};
  std::vector<Parameter*> pointers() {
    std::vector<Parameter*> all;
    for (Parameter& parameter : parameters_) all.push_back(&parameter);
    return all;
  }

 private:
  std::vector<Parameter> parameters_of(Content& content) const {
    std::vector<Parameter> all;
    for (const Tensor& tensor : content.tensors()) {
      all.emplace_back("w", Shape{1}, Role::kMatrix, device_);
      all.back().set_storage(std::make_unique<ResidentWeight>(tensor));
    }
    return all;
  }
};

TEST_F(WeightSnapshotTest, RestoresBitForBitRepeatedly) {
  snapshot_.take(pointers(), device_);
  EXPECT_TRUE(snapshot_.taken());
  for (int i = 0; i < 2; ++i) {
    for (const Tensor& tensor : content_.tensors()) fill_zero(tensor, device_);
    snapshot_.restore(pointers(), device_);
    EXPECT_TRUE(content_.has_its_bits());
  }
}

TEST_F(WeightSnapshotTest, CountsBytesAsSnapshotUntilDropped) {
  snapshot_.take(pointers(), device_);
  snapshot_.take(pointers(), device_);
  const auto kind = static_cast<std::size_t>(MemoryKind::kSnapshot);
  EXPECT_GE(host_->use().live[kind], content_.total_bytes());
  EXPECT_LT(host_->use().live[kind], 2 * content_.total_bytes());
  snapshot_.drop();
  EXPECT_FALSE(snapshot_.taken());
  EXPECT_EQ(host_->use().live_total + host_->use().cached, 0u);
  EXPECT_THROW(snapshot_.restore(pointers(), device_), Error);
}

TEST_F(WeightSnapshotTest, OutOfMemoryHoldsNothing) {
  WeightSnapshot small(MemoryPool::create("host", std::size_t{1} << 19));
  EXPECT_THROW(small.take(pointers(), device_), OutOfMemory);
  EXPECT_FALSE(small.taken());
}

}  // namespace
}  // namespace hybrid_trainer
