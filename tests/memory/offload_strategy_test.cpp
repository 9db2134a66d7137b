// Contract tests of OffloadStrategy, run for every implementation.
#include "hybrid_trainer/memory/offload_strategy.h"

#include <gtest/gtest.h>
#include <sys/mman.h>
#include <unistd.h>

#include <filesystem>
#include <fstream>

#include "hybrid_trainer/core/error.h"
#include "tests/memory/content.h"

namespace hybrid_trainer {
namespace {

using testing::Content;
using testing::live;

struct Case {
  std::string name;
  PredictAwareMemoryConfig config;
  friend std::ostream& operator<<(std::ostream& out, const Case& c) { return out << c.name; }
};

std::vector<Case> cases() {
  std::vector<Case> cases;
  for (const bool async : {false, true}) {
    const std::string when = async ? "Async" : "Here";
    PredictAwareMemoryConfig config;
    config.async_restore = async;
    for (const std::string& strategy : offload_strategy_names()) {
      config.offload_strategy = strategy;
      cases.push_back({strategy + when, config});
    }
  }
  return cases;
}

class OffloadContract : public ::testing::TestWithParam<Case> {
 protected:
  /// Whether the device keeps as much as it should.
  bool holds_its_share(std::size_t bytes_before) const {
    if (!moves()) return state_bytes() == bytes_before;
    const bool rounded = strategy_->restored() == Restored::kRounded;
    return rounded ? 100 * state_bytes() < 27 * bytes_before : state_bytes() == 0;
  }
  bool is_restored() const {
    const Restored restored = strategy_->restored();
    if (restored == Restored::kZeros) return content_.is_zero();
    return restored == Restored::kBits ? content_.has_its_bits() : content_.in_place();
  }
  bool moves() const { return GetParam().config.offload_strategy != "none"; }
  std::size_t state_bytes() const { return live(device_, MemoryKind::kOptimizerState); }
  Stream device_{MemoryPool::create("device")};
  Stream host_{MemoryPool::create("host")};
  Content content_{device_};
  MemoryPlaces places_{{}, device_, host_.pool()};
  std::unique_ptr<OffloadStrategy> strategy_ =
      make_offload_strategy(GetParam().config, offload_pool(GetParam().config, places_));
};

TEST_P(OffloadContract, FreesMemoryAndRestoresContentEachCycle) {
  const std::size_t bytes_before = state_bytes();
  for (int cycle = 0; cycle < 3; ++cycle) {
    const MoveOutResult result = strategy_->move_out(content_.slots(), device_);
    EXPECT_EQ(result.problem, "");
    EXPECT_EQ(result.freed_bytes, bytes_before - state_bytes());
    EXPECT_EQ(content_.in_place(), !moves());
    EXPECT_TRUE(holds_its_share(bytes_before)) << state_bytes();
    EXPECT_EQ(device_.pool()->use().cached, 0u);
    const Location out = moves() ? Location::kOffloaded : Location::kResident;
    EXPECT_EQ(strategy_->location(), out);
    strategy_->begin_return();
    strategy_->begin_return();
    EXPECT_EQ(strategy_->location(),
              moves() && GetParam().config.async_restore ? Location::kReturning : out);
    strategy_->wait_until_restored();
    EXPECT_EQ(strategy_->location(), Location::kResident);
    EXPECT_TRUE(is_restored());
    EXPECT_EQ(state_bytes(), bytes_before);
    EXPECT_EQ(host_.pool()->use().live_total + host_.pool()->use().cached, 0u);
  }
}

TEST_P(OffloadContract, WaitRestoresWithoutBeginReturn) {
  strategy_->move_out(content_.slots(), device_);
  strategy_->wait_until_restored();
  strategy_->wait_until_restored();
  EXPECT_TRUE(is_restored());
}

TEST_P(OffloadContract, DoesNothingWithoutOffloadedContent) {
  strategy_->begin_return();
  strategy_->wait_until_restored();
  EXPECT_TRUE(content_.has_its_bits());
}

TEST_P(OffloadContract, SupportsDestructionBeforeRestore) {
  const std::size_t bytes_before = state_bytes();
  strategy_->move_out(content_.slots(), device_);
  strategy_->begin_return();
  strategy_.reset();
  EXPECT_EQ(state_bytes(), moves() ? 0 : bytes_before);
}

INSTANTIATE_TEST_SUITE_P(All, OffloadContract, ::testing::ValuesIn(cases()),
                         [](const auto& info) { return info.param.name; });

TEST(OffloadToMemory, SmallHostMemoryKeepsContentInPlace) {
  const Stream device(MemoryPool::create("device"));
  const auto host = MemoryPool::create("host", std::size_t{1} << 19);
  Content content(device);
  const auto strategy = make_offload_strategy({}, host);
  const MoveOutResult result = strategy->move_out(content.slots(), device);
  EXPECT_EQ(result.freed_bytes, 0u);
  EXPECT_NE(result.problem.find("host"), std::string::npos) << result.problem;
  EXPECT_TRUE(content.has_its_bits());
  EXPECT_EQ(host->use().live_total, 0u);
}

std::string lines_of_status(const std::string& key) {
  std::ifstream status("/proc/self/status");
  for (std::string line; std::getline(status, line);)
    if (line.starts_with(key)) return line;
  return "";
}

/// Sanitizers replace mlock by a function that locks nothing.
bool locked_pages_are_counted() {
  std::vector<char> page(65536);
  const std::string before = lines_of_status("VmLck:");
  if (mlock(page.data(), page.size()) != 0) return true;  // mlock failed, which must be reported
  const bool counted = lines_of_status("VmLck:") != before;
  munlock(page.data(), page.size());
  return counted;
}

TEST(PinnedOffload, LocksOffloadedPagesOrReportsLimit) {
  if (!locked_pages_are_counted()) GTEST_SKIP() << "mlock has no effect in this process";
  const Stream device(MemoryPool::create("device"));
  Content content(device);
  const auto strategy =
      make_offload_strategy({.offload_strategy = "pinned_cpu_offload"}, MemoryPool::create("host"));
  const std::string before = lines_of_status("VmLck:");
  const MoveOutResult result = strategy->move_out(content.slots(), device);
  if (!result.problem.empty()) {
    EXPECT_NE(result.problem.find("ulimit -l"), std::string::npos) << result.problem;
    EXPECT_TRUE(content.has_its_bits());
    return;
  }
  EXPECT_NE(lines_of_status("VmLck:"), before);
  strategy->wait_until_restored();
  strategy->move_out(content.slots(), device);
  strategy->wait_until_restored();
  strategy->release_moved_out();
  EXPECT_EQ(lines_of_status("VmLck:"), before);
}

TEST(OffloadPool, NvmeOffloadUsesFilePool) {
  const Stream device(MemoryPool::create("device"));
  const auto host = MemoryPool::create("host");
  MemoryPlaces places({}, device, host);
  EXPECT_EQ(offload_pool({}, places), host);
  const auto file = offload_pool({.offload_strategy = "nvme_offload"}, places);
  EXPECT_EQ(file, places.at("file").pool());
  Content content(device);
  const auto strategy = make_offload_strategy({.offload_strategy = "nvme_offload"}, file);
  strategy->move_out(content.slots(), device);
  EXPECT_GT(places.file_use().max_taken, 0u);
  EXPECT_EQ(host->use().live_total, 0u);
  strategy->wait_until_restored();
  EXPECT_TRUE(content.has_its_bits());
}

TEST(OffloadRestore, FullDeviceThrowsAndRetrySucceeds) {
  const Stream device(MemoryPool::create("device", std::size_t{1} << 20));
  Content content(device);
  const auto strategy = make_offload_strategy({}, MemoryPool::create("host"));
  strategy->move_out(content.slots(), device);
  {
    const Buffer taken = device.pool()->allocate(700000, MemoryKind::kActivations);
    strategy->begin_return();
    EXPECT_THROW(strategy->wait_until_restored(), OutOfMemory);
    EXPECT_FALSE(content.in_place());
  }
  strategy->wait_until_restored();
  EXPECT_TRUE(content.has_its_bits());
}

TEST(MakeOffloadStrategy, SuggestsNearestNameAndRefusesBadFolder) {
  PredictAwareMemoryConfig config;
  config.offload_strategy = "cpu_ofload";
  try {
    make_offload_strategy(config, MemoryPool::create("host"));
    FAIL() << "no error";
  } catch (const ConfigError& error) {
    EXPECT_NE(std::string(error.what()).find("cpu_offload"), std::string::npos) << error.what();
  }
  config.offload_strategy = "nvme_offload";
  const Stream device(MemoryPool::create("device"));
  const auto file = std::filesystem::temp_directory_path() /
                    ("offload_strategy_test_" + std::to_string(getpid()));
  std::ofstream(file) << "not a folder";
  for (const std::string& folder : {std::string("/nonexistent/folder"), file.string()}) {
    MemoryPlaces places({.folder = folder}, device, MemoryPool::create("host"));
    EXPECT_THROW(offload_pool(config, places), CannotCreate) << folder;
  }
  std::filesystem::remove(file);
}

}  // namespace
}  // namespace hybrid_trainer
