#include "memory/memory_monitor.h"

#include <gtest/gtest.h>

#include "hybrid_trainer/core/error.h"

namespace hybrid_trainer {
namespace {

MemoryUse use_of(std::size_t peak, std::size_t live = 0) {
  MemoryUse use;
  use.peak_total = peak;
  use.live_total = live;
  return use;
}

TEST(MemoryMonitor, StatusFollowsShareOfBudget) {
  const auto status = [](std::size_t peak) {
    return MemoryMonitor(1000).observe(Phase::kFull, use_of(peak), 4).status;
  };
  EXPECT_EQ(status(899), MemoryStatus::kNormal);
  EXPECT_EQ(status(900), MemoryStatus::kTarget);
  EXPECT_EQ(status(920), MemoryStatus::kWarning);
  EXPECT_EQ(status(950), MemoryStatus::kCritical);
  EXPECT_EQ(status(970), MemoryStatus::kEmergency);
  EXPECT_STREQ(name_of(MemoryStatus::kCritical), "critical");
}

TEST(MemoryMonitor, IsAlwaysNormalWithoutBudget) {
  MemoryMonitor monitor(std::nullopt);
  EXPECT_EQ(monitor.observe(Phase::kFull, use_of(1 << 30), 4).status, MemoryStatus::kNormal);
}

TEST(MemoryMonitor, RisingUseRaisesRisk) {
  MemoryMonitor rising(10000), steady(10000);
  MemoryReading up, level;
  for (std::size_t i = 0; i < 20; ++i) {
    up = rising.observe(Phase::kFull, use_of(5000 + 40 * i), 4);
    level = steady.observe(Phase::kFull, use_of(5000), 4);
  }
  EXPECT_EQ(up.status, MemoryStatus::kNormal);
  EXPECT_EQ(level.risk, 0);
  EXPECT_GT(up.risk, 0);
  EXPECT_LT(up.risk, 1);
}

TEST(MemoryMonitor, DetectsLeakWithinPhase) {
  MemoryMonitor monitor(std::nullopt);
  for (std::size_t i = 0; i < 40; ++i) {
    const bool leaks = monitor.observe(Phase::kFull, use_of(0, 1000 + i), 4).leaks;
    EXPECT_EQ(leaks, i >= 15) << i;
    EXPECT_FALSE(monitor.observe(Phase::kPredict, use_of(0, 1000 + i % 8), 4).leaks);
  }
}

TEST(MemoryMonitor, RecommendsMicroBatchForTightestPhase) {
  const auto use = [](std::size_t growing, std::size_t rest) {
    MemoryUse use;
    use.peak[static_cast<std::size_t>(MemoryKind::kActivations)] = growing;
    use.peak_total = growing + rest;
    return use;
  };
  MemoryMonitor monitor(10000);
  // 100 bytes per example and 1000 fixed: (9000 - 1000) / 100 examples.
  EXPECT_EQ(monitor.observe(Phase::kFull, use(400, 1000), 4).recommended_micro_batch, 80);
  EXPECT_EQ(monitor.observe(Phase::kCorrect, use(800, 2990), 4).recommended_micro_batch, 30);
  EXPECT_EQ(monitor.observe(Phase::kFull, use(400, 1000), 4).recommended_micro_batch, 30);
  EXPECT_EQ(monitor.observe(Phase::kCorrect, use(800, 9900), 4).recommended_micro_batch, 1);
  EXPECT_EQ(
      MemoryMonitor(std::nullopt).observe(Phase::kFull, use(400, 1000), 4).recommended_micro_batch,
      0);
}

}  // namespace
}  // namespace hybrid_trainer
