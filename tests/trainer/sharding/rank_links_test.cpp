#include "src/trainer/sharding/rank_links.h"

#include <gtest/gtest.h>

#include <chrono>
#include <thread>

#include "src/distributed/host_ranks.h"

namespace hybrid_trainer {
namespace {

using namespace std::chrono_literals;

/// Whether rank 0 continues after begin() before rank 1 takes part in the collective.
bool goes_on_beside(const DistributedConfig& config) {
  std::atomic<bool> has_begun = false, was_beside = false;
  run_thread_ranks(2, [&](Communicator& others) {
    RankLinks links(others, config);
    const Stream stream{MemoryPool::create("rank")};
    for (int i = 0; i < 300 && links.ranks().rank() == 1 && !has_begun; ++i)
      std::this_thread::sleep_for(1ms);
    if (links.ranks().rank() == 1) was_beside = has_begun.load();
    const CollectiveTicket job =
        links.ranks().begin([](Communicator& all, const Stream&) { all.barrier(); }, stream);
    has_begun = true;
    links.ranks().wait_for(job, stream);
  });
  return was_beside;
}

TEST(RankLinks, OverlapSettingControlsBackgroundCalls) {
  EXPECT_TRUE(goes_on_beside({.overlap = true}));
  EXPECT_FALSE(goes_on_beside({.overlap = false}));
}

TEST(RankLinks, SimulatesConfiguredLink) {
  for (const DistributedConfig& config :
       {DistributedConfig{.simulated_link = {1'000'000}},
        DistributedConfig{.simulated_latency_microseconds = 20'000}}) {
    run_thread_ranks(2, [&](Communicator& others) {
      RankLinks links(others, config);
      const Stream stream{MemoryPool::create("rank")};
      const Tensor values = Tensor::zeros({5000}, DType::kF32, MemoryKind::kWorkspace, stream);
      const auto begin = std::chrono::steady_clock::now();
      links.ranks().gather_parts(values, {5000, 0}, stream);
      EXPECT_GE(std::chrono::steady_clock::now() - begin, 20ms);
    });
  }
}

TEST(RankLinks, DescribesSimulatedLink) {
  EXPECT_EQ(simulated_link_text({}), "");
  EXPECT_EQ(
      simulated_link_text({.simulated_link = {125'000'000}, .simulated_latency_microseconds = 50}),
      "125MB a second, 50 us a call");
}

}  // namespace
}  // namespace hybrid_trainer
