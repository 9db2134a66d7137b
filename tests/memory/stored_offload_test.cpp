#include "memory/stored_offload.h"

#include <gtest/gtest.h>

#include <latch>

#include "hybrid_trainer/core/error.h"
#include "tests/memory/content.h"

namespace hybrid_trainer {
namespace {

using testing::Content;

/// A store that returns content only after `release`, and fails the first `failures` times.
class SlowStore final : public ContentStore {
 public:
  SlowStore(std::latch& release, int failures)
      : memory_(MemoryPool::create("host")), release_(release), failures_(failures) {}
  void keep(const std::vector<OffloadSlot>& slots, const Stream& stream) override {
    memory_.keep(slots, stream);
  }
  void write_to(const std::vector<Tensor>& tensors, const Stream& stream) override {
    release_.wait();
    if (failures_-- > 0) throw IoError("the disk is gone");
    memory_.write_to(tensors, stream);
  }
  void forget() override { memory_.forget(); }

 private:
  PoolStore memory_;
  std::latch& release_;
  mutable int failures_;
};

TEST(StoredOffload, BeginReturnDoesNotBlock) {
  const Stream device(MemoryPool::create("device"));
  Content content(device);
  std::latch release(1);
  StoredOffload offload(std::make_unique<SlowStore>(release, 0), true);
  offload.move_out(content.slots(), device);
  offload.begin_return();
  EXPECT_FALSE(content.in_place());  // the store waits for the next line
  release.count_down();
  offload.wait_until_restored();
  EXPECT_TRUE(content.has_its_bits());
  EXPECT_GT(offload.use().restore_seconds, 0) << "the thread's time counts";
}

TEST(StoredOffload, ReportsThreadErrorAndKeepsContent) {
  const Stream device(MemoryPool::create("device"));
  Content content(device);
  std::latch release(0);
  StoredOffload offload(std::make_unique<SlowStore>(release, 2), true);
  offload.move_out(content.slots(), device);
  offload.begin_return();
  EXPECT_THROW(offload.wait_until_restored(), IoError);
  EXPECT_THROW(offload.wait_until_restored(), IoError);
  EXPECT_FALSE(content.in_place());
  offload.wait_until_restored();
  EXPECT_TRUE(content.has_its_bits());
}

TEST(StoredOffload, RefusesToMoveOutTwice) {
  const Stream device(MemoryPool::create("device"));
  Content content(device);
  StoredOffload offload(std::make_unique<PoolStore>(MemoryPool::create("host")), true);
  offload.move_out(content.slots(), device);
  EXPECT_THROW(offload.move_out({}, device), Error);
  offload.wait_until_restored();
  content.tensors()[1] = Tensor{};
  EXPECT_THROW(offload.move_out(content.slots(), device), Error);
  EXPECT_TRUE(content.tensors()[0].defined());
}

TEST(StoredOffload, PreservesMemoryKind) {
  const Stream device(MemoryPool::create("device"));
  const auto host = MemoryPool::create("host");
  Tensor gradient = Tensor::zeros({100}, DType::kF32, MemoryKind::kGradients, device);
  const auto live = [](const MemoryPool& pool) {
    return pool.use().live[static_cast<std::size_t>(MemoryKind::kGradients)];
  };
  StoredOffload offload(std::make_unique<PoolStore>(host), true);
  offload.move_out({{"gradient", &gradient}}, device);
  EXPECT_EQ(live(*device.pool()), 0u);
  EXPECT_GT(live(*host), 0u);
  offload.wait_until_restored();
  EXPECT_GT(live(*device.pool()), 0u);
  EXPECT_EQ(gradient.kind(), MemoryKind::kGradients);
}

TEST(StoredOffload, CountsMovedBytesAndSeconds) {
  const Stream device(MemoryPool::create("device"));
  Content content(device);
  const std::size_t held = device.pool()->use().live_total;
  StoredOffload offload(std::make_unique<PoolStore>(MemoryPool::create("host")), true);
  double waited = 0, restored = 0;
  for (int cycle = 1; cycle <= 3; ++cycle) {
    EXPECT_EQ(offload.move_out(content.slots(), device).freed_bytes, held);
    EXPECT_EQ(offload.use().times, cycle);
    EXPECT_EQ(offload.use().bytes, static_cast<std::size_t>(cycle) * content.total_bytes());
    offload.wait_until_restored();
    EXPECT_GT(offload.use().waited_seconds, waited);
    EXPECT_GT(offload.use().restore_seconds, restored);
    waited = offload.use().waited_seconds;
    restored = offload.use().restore_seconds;
  }
}

TEST(StoredOffload, SynchronousModeRestoresInWait) {
  const Stream device(MemoryPool::create("device"));
  Content content(device);
  StoredOffload offload(std::make_unique<PoolStore>(MemoryPool::create("host")), false);
  offload.move_out(content.slots(), device);
  offload.begin_return();
  EXPECT_EQ(device.pool()->use().live_total, 0u);
  offload.wait_until_restored();
  EXPECT_TRUE(content.has_its_bits());
}

}  // namespace
}  // namespace hybrid_trainer
