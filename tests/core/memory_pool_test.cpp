#include "hybrid_trainer/core/memory_pool.h"

#include <gtest/gtest.h>

#include <cstring>
#include <map>
#include <thread>
#include <vector>

#include "hybrid_trainer/core/error.h"

namespace hybrid_trainer {
namespace {

constexpr std::size_t kMiB = std::size_t{1} << 20;

std::size_t live(const MemoryPool& pool, MemoryKind kind) {
  return pool.use().live[static_cast<std::size_t>(kind)];
}
std::size_t peak(const MemoryPool& pool, MemoryKind kind) {
  return pool.use().peak[static_cast<std::size_t>(kind)];
}

TEST(MemoryPool, CountsLiveBytesByKind) {
  const auto pool = MemoryPool::create("device");
  const Buffer weights = pool->allocate(640, MemoryKind::kParameters);
  {
    const Buffer gradients = pool->allocate(128, MemoryKind::kGradients);
    EXPECT_EQ(live(*pool, MemoryKind::kGradients), 128u);
    EXPECT_EQ(pool->use().live_total, 768u);
  }
  EXPECT_EQ(live(*pool, MemoryKind::kParameters), 640u);
  EXPECT_EQ(live(*pool, MemoryKind::kGradients), 0u);
  EXPECT_EQ(pool->use().live_total, 640u);
  EXPECT_EQ(pool->use().cached, 128u);
}

TEST(MemoryPool, KeepsPeaksUntilReset) {
  const auto pool = MemoryPool::create("device");
  const Buffer kept = pool->allocate(64, MemoryKind::kParameters);
  { const Buffer passing = pool->allocate(1024, MemoryKind::kActivations); }
  EXPECT_EQ(peak(*pool, MemoryKind::kActivations), 1024u);
  EXPECT_EQ(pool->use().peak_total, 1088u);
  pool->reset_peaks();
  EXPECT_EQ(peak(*pool, MemoryKind::kActivations), 0u);
  EXPECT_EQ(peak(*pool, MemoryKind::kParameters), 64u);
  EXPECT_EQ(pool->use().peak_total, 64u);
}

TEST(MemoryPool, ReusesFreedBlocks) {
  const auto pool = MemoryPool::create("device");
  for (const std::size_t bytes : {std::size_t{1000}, 100 * std::size_t{1000}, 3 * kMiB}) {
    { const Buffer first = pool->allocate(bytes, MemoryKind::kActivations); }
    const std::size_t fresh = pool->use().fresh_total;
    const Buffer second = pool->allocate(bytes, MemoryKind::kWorkspace);
    EXPECT_EQ(pool->use().fresh_total, fresh) << bytes;
    EXPECT_GE(second.bytes(), bytes);
  }
}

/// The process's memory, with the requested size of each block.
class ApartMemory final : public MemorySource {
 public:
  explicit ApartMemory(std::vector<std::size_t>& taken) : taken_(taken) {}
  void* take(std::size_t bytes) noexcept override {
    taken_.push_back(bytes);
    return memory_->take(bytes);
  }
  void give(void* data, std::size_t bytes) noexcept override {
    std::erase(taken_, bytes);
    memory_->give(data, bytes);
  }
  Device device() const override { return {}; }
  bool prefers_slabs() const override { return true; }
  bool separates_blocks() const override { return true; }

 private:
  std::unique_ptr<MemorySource> memory_ = system_memory();
  std::vector<std::size_t>& taken_;
};

TEST(MemoryPool, SeparateBlocksHaveExactSize) {
  std::vector<std::size_t> taken;
  const auto pool = MemoryPool::create("device", {}, std::make_unique<ApartMemory>(taken));
  {
    const Buffer first = pool->allocate(5, MemoryKind::kActivations);
    const Buffer second = pool->allocate(100'001, MemoryKind::kActivations);
    EXPECT_EQ(taken, (std::vector<std::size_t>{5, 100'001}));
    EXPECT_EQ(pool->use().live_total, 100'006u);
  }
  EXPECT_TRUE(taken.empty());
  EXPECT_EQ(pool->use().cached, 0u);
}

TEST(MemoryPool, AlignsToCacheLinesAndHugePages) {
  const auto pool = MemoryPool::create("device");
  const Buffer line = pool->allocate(1, MemoryKind::kData);
  const Buffer huge = pool->allocate(2 * kMiB + 1, MemoryKind::kData);
  EXPECT_EQ(reinterpret_cast<std::uintptr_t>(line.data()) % 64, 0u);
  EXPECT_EQ(reinterpret_cast<std::uintptr_t>(huge.data()) % (2 * kMiB), 0u);
  EXPECT_EQ(huge.bytes(), 2 * kMiB + 4096);
  std::memset(huge.data(), 1, huge.bytes());
}

TEST(MemoryPool, TrimReturnsCachedBlocks) {
  const auto pool = MemoryPool::create("device");
  { const Buffer block = pool->allocate(8 * kMiB, MemoryKind::kWorkspace); }
  EXPECT_EQ(pool->use().cached, 8 * kMiB);
  pool->trim();
  EXPECT_EQ(pool->use().cached, 0u);
  EXPECT_EQ(pool->use().fresh_total, 8 * kMiB);
}

TEST(MemoryPool, OverBudgetThrowsWithDetails) {
  const auto pool = MemoryPool::create("device", 1024);
  const Buffer kept = pool->allocate(640, MemoryKind::kParameters);
  try {
    const Buffer over = pool->allocate(512, MemoryKind::kGradients);
    FAIL() << "no error";
  } catch (const OutOfMemory& error) {
    EXPECT_EQ(error.requested_bytes(), 512u);
    EXPECT_EQ(error.available_bytes(), 384u);
    EXPECT_EQ(error.code(), ExitCode::kMemory);
    const std::string message = error.what();
    for (const char* part : {"device", "512", "gradients", "640 in use (parameters 640)",
                             "budget 1024", "batch_size"}) {
      EXPECT_NE(message.find(part), std::string::npos) << message << " lacks " << part;
    }
  }
  EXPECT_EQ(pool->use().live_total, 640u);
  try {
    const Buffer over = pool->allocate(512, MemoryKind::kParameters);
    FAIL() << "no error";
  } catch (const OutOfMemory& error) {
    EXPECT_NE(std::string(error.what()).find("model.width"), std::string::npos) << error.what();
  }
  EXPECT_NO_THROW(pool->allocate(384, MemoryKind::kGradients));
}

TEST(MemoryPool, ShortageReportsRequestAndLargestBlocks) {
  const auto pool = MemoryPool::create("device", 8192);
  std::vector<Buffer> kept;
  for (int i = 1; i <= 12; ++i) {
    const std::string name = "w" + std::to_string(i);
    const MemoryLabel label(name);
    kept.push_back(pool->allocate(static_cast<std::size_t>(64 * i), MemoryKind::kParameters,
                                  {DType::kF32, {4, 4 * i}}));
  }
  kept.erase(kept.begin() + 10);  // w11
  const std::string long_name = std::string(60, 'x') + ".attn";
  const MemoryLabel outer(long_name);
  std::shared_ptr<const MemoryShortage> shortage;
  try {
    pool->allocate(4096, MemoryKind::kActivations, {DType::kBF16, {32, 64}});
  } catch (const OutOfMemory& error) {
    shortage = error.shortage();
    const std::string message = error.what();
    for (const char* part : {".attn bf16 (32, 64)", "largest 768 for w12 f32 (4, 48), 640 for w10"})
      EXPECT_NE(message.find(part), std::string::npos) << message;
  }
  ASSERT_TRUE(shortage);
  EXPECT_EQ(shortage->asked.bytes, 4096u);
  EXPECT_EQ(shortage->asked.kind, MemoryKind::kActivations);
  EXPECT_EQ(std::string(shortage->asked.label.data()), long_name.substr(65 - 47));
  EXPECT_EQ(shortage->budget_bytes, 8192u);
  EXPECT_EQ(shortage->blocks, 11u);
  EXPECT_EQ(shortage->use.live_total, 64u * (78 - 11));
  ASSERT_EQ(shortage->largest.size(), MemoryShortage::kLargest);
  EXPECT_EQ(shortage->largest[0].text(), "w12 f32 (4, 48)");
  EXPECT_EQ(shortage->largest[1].text(), "w10 f32 (4, 40)");
  EXPECT_EQ(shortage->largest[9].text(), "w2 f32 (4, 8)");
}

/// Bytes of each slot.
class Listening final : public MemoryListener {
 public:
  void allocated(std::size_t slot, const MemoryBlock& block) override {
    EXPECT_TRUE(live.emplace(slot, block.text()).second);
    ++calls;
  }
  void released(std::size_t slot, const MemoryBlock&) override {
    EXPECT_EQ(live.erase(slot), 1u);
    ++calls;
  }
  std::map<std::size_t, std::string> live;
  int calls = 0;
};

TEST(MemoryPool, NotifiesListenerOfEachBlock) {
  Listening listener;
  const auto pool = MemoryPool::create("device");
  Buffer weights = pool->allocate(64, MemoryKind::kParameters);
  pool->set_listener(&listener);
  EXPECT_EQ(listener.live.at(0), "parameters");
  {
    const MemoryLabel label("h.0");
    const Buffer passing = pool->allocate(64, MemoryKind::kActivations, {DType::kF32, {16}});
    EXPECT_EQ(listener.live.at(1), "h.0 f32 (16)");
    weights.set_kind(MemoryKind::kMasterWeights);
    EXPECT_EQ(listener.live.at(0), "master_weights");
  }
  const Buffer next = pool->allocate(64, MemoryKind::kData);
  EXPECT_EQ(listener.live.at(1), "data") << "a slot is reused";
  pool->set_listener(nullptr);
  weights = Buffer();
  EXPECT_EQ(listener.calls, 6);
}

TEST(MemoryPool, MemoryTakenStaysNearPeakUse) {
  const auto pool = MemoryPool::create("device");
  for (std::size_t i = 0; i < 60; ++i)  // all of different sizes
    const Buffer block = pool->allocate((40 * 1024 - i * 512) * 1024, MemoryKind::kActivations);
  const MemoryUse use = pool->use();
  EXPECT_EQ(use.peak_total, 40 * kMiB);
  EXPECT_GT(use.cached, 0u);
  EXPECT_LE(use.max_taken, use.peak_total + use.peak_total / 32);
}

TEST(MemoryPool, EvictsOnlyOldestCachedBlocks) {
  const auto pool = MemoryPool::create("device", 64 * kMiB);
  Buffer most = pool->allocate(64 * kMiB, MemoryKind::kActivations);
  most = Buffer();
  most = pool->allocate(16 * kMiB, MemoryKind::kActivations);
  { const Buffer first = pool->allocate(24 * kMiB, MemoryKind::kActivations); }
  { const Buffer second = pool->allocate(20 * kMiB, MemoryKind::kActivations); }
  const Buffer third = pool->allocate(8 * kMiB, MemoryKind::kActivations);  // 68 MiB with both
  const std::size_t fresh = pool->use().fresh_total;
  const Buffer again = pool->allocate(20 * kMiB, MemoryKind::kActivations);
  EXPECT_EQ(pool->use().fresh_total, fresh);
  EXPECT_EQ(pool->use().cached, 0u);
}

TEST(MemoryPool, FreesCachedBlocksBeforeThrowing) {
  const auto pool = MemoryPool::create("device", 1024);
  { const Buffer small = pool->allocate(576, MemoryKind::kActivations); }
  const Buffer large = pool->allocate(1024, MemoryKind::kActivations);
  EXPECT_EQ(pool->use().cached, 0u);
  EXPECT_EQ(pool->use().live_total, 1024u);
}

TEST(MemoryPool, BufferMovesAndOutlivesPoolHandle) {
  auto pool = MemoryPool::create("device");
  Buffer first = pool->allocate(64, MemoryKind::kSnapshot);
  void* const data = first.data();
  Buffer second = std::move(first);
  EXPECT_EQ(second.data(), data);
  EXPECT_EQ(second.kind(), MemoryKind::kSnapshot);
  second = pool->allocate(128, MemoryKind::kData);
  EXPECT_EQ(live(*pool, MemoryKind::kSnapshot), 0u);
  const std::weak_ptr<MemoryPool> watched = pool;
  pool.reset();
  EXPECT_FALSE(watched.expired());
  second = Buffer();
  EXPECT_TRUE(watched.expired());
}

TEST(MemoryPool, CountsCorrectlyWithManyThreads) {
  const auto pool = MemoryPool::create("device");
  std::vector<std::thread> threads;
  for (int t = 0; t < 4; ++t) {
    threads.emplace_back([&, t] {
      for (std::size_t i = 0; i < 2000; ++i) {
        const Buffer block = pool->allocate(64 * (1 + i % 7), MemoryKind::kActivations);
        std::memset(block.data(), t, block.bytes());
        EXPECT_EQ(static_cast<char*>(block.data())[block.bytes() - 1], t);
      }
    });
  }
  for (std::thread& thread : threads) thread.join();
  const MemoryUse use = pool->use();
  EXPECT_EQ(use.live_total, 0u);
  EXPECT_EQ(use.cached, use.fresh_total);
  EXPECT_LE(use.peak_total, 4u * 7 * 64);
}

}  // namespace
}  // namespace hybrid_trainer
