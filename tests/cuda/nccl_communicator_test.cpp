#include "hybrid_trainer/distributed/nccl_communicator.h"

#include <gtest/gtest.h>

#include <chrono>
#include <future>
#include <thread>

#include "hybrid_trainer/core/pools.h"
#include "hybrid_trainer/distributed/side_stream_communicator.h"
#include "hybrid_trainer/distributed/thread_communicator.h"
#include "tests/cuda/nccl_ranks.h"
#include "tests/distributed/rank_suite.h"
#include "tests/distributed/socket_ranks.h"

namespace hybrid_trainer {
namespace {

using testing::counted;
using testing::floats_of;
using testing::message_of;

TEST(NcclRanks, GoOnBeforeOthersHaveComeToTheirCall) {
  if (most_nccl_ranks() < 2) GTEST_SKIP() << kTooFewDevices;
  std::promise<void> enqueued;
  run_nccl_ranks(2, [&](Communicator& ranks, Device device) {
    const Stream stream(make_device_pool(device));
    const Tensor values = counted(100, 1, stream);
    ranks.all_reduce(values, Reduction::kSum, stream);  // connects them
    stream.synchronize();
    if (ranks.rank() == 1) enqueued.get_future().wait();
    for (int i = 0; i < 3; ++i) ranks.all_reduce(values, Reduction::kSum, stream);
    if (ranks.rank() == 0) enqueued.set_value();
    EXPECT_EQ(floats_of(values, stream)[0], 16);
  });
}

using RankBeside = std::function<void(Communicator&, const Stream&, std::promise<void>&)>;

/// Two ranks that are connected and go on beside their streams. The second comes to its calls when
/// the first keeps the promise.
void run_beside(const RankBeside& first, const testing::RankBody& second) {
  std::promise<void> may_go_on;
  run_nccl_ranks(2, [&](Communicator& others, Device device) {
    SideStreamCommunicator ranks(others);
    const Stream stream(make_device_pool(device));
    ranks.all_reduce(counted(1000, 1, stream), Reduction::kSum, stream);
    stream.synchronize();
    if (ranks.rank() == 0) return first(ranks, stream, may_go_on);
    may_go_on.get_future().wait();
    second(ranks, stream);
  });
}

CollectiveTicket begin_sum(const Tensor& values, Communicator& ranks, const Stream& stream) {
  return ranks.begin(
      [values](Communicator& all, const Stream& beside) {
        all.all_reduce(values, Reduction::kSum, beside);
      },
      stream);
}

/// Whether the stream comes to the end of what it has been given, within a time that is enough.
bool comes_to_its_end(const Stream& stream) {
  Event end;
  end.record(stream);
  for (int i = 0; i < 2000 && !end.reached(); ++i)
    std::this_thread::sleep_for(std::chrono::milliseconds(5));
  return end.reached();
}

bool waits(const Stream& stream) {
  Event end;
  end.record(stream);
  std::this_thread::sleep_for(std::chrono::milliseconds(50));
  return !end.reached();
}

/// While the other rank has not come to what began.
TEST(NcclRanks, SendInAStreamBesideTheirCallersWhichWaitsWhereTold) {
  if (most_nccl_ranks() < 2) GTEST_SKIP() << kTooFewDevices;
  run_beside(
      [](Communicator& ranks, const Stream& stream, std::promise<void>& other_may_go_on) {
        const Tensor sent = counted(1000, 1, stream), more = counted(1000, 2, stream);
        const CollectiveTicket job = begin_sum(sent, ranks, stream);
        const CollectiveTicket later = begin_sum(more, ranks, stream);
        EXPECT_TRUE(comes_to_its_end(stream));
        ranks.wait_for(job, stream);
        EXPECT_TRUE(waits(stream));
        other_may_go_on.set_value();
        EXPECT_EQ(floats_of(sent, stream)[5], 16);
        ranks.wait_for(later, stream);
        EXPECT_EQ(floats_of(more, stream)[5], 27);
      },
      [](Communicator& ranks, const Stream& stream) {
        begin_sum(counted(1000, 5, stream), ranks, stream);
        ranks.wait_for(begin_sum(counted(1000, 15, stream), ranks, stream), stream);
        stream.synchronize();
      });
}

TEST(NcclRanks, ComeToOtherCallsAfterAllThatBegan) {
  if (most_nccl_ranks() < 2) GTEST_SKIP() << kTooFewDevices;
  run_beside(
      [](Communicator& ranks, const Stream& stream, std::promise<void>& other_may_go_on) {
        const Tensor sent = counted(1000, 1, stream), own = counted(10, 7, stream);
        begin_sum(sent, ranks, stream);
        ranks.all_reduce(own, Reduction::kSum, stream);
        EXPECT_TRUE(waits(stream));
        other_may_go_on.set_value();
        EXPECT_EQ(floats_of(own, stream)[0], 14);
        EXPECT_EQ(floats_of(sent, stream)[0], 2);
      },
      [](Communicator& ranks, const Stream& stream) {
        begin_sum(counted(1000, 1, stream), ranks, stream);
        ranks.all_reduce(counted(10, 7, stream), Reduction::kSum, stream);
        stream.synchronize();
      });
}

/// Else memory that is freed meanwhile would be given to the caller's next work.
TEST(NcclRanks, KeepWhatIsSentBesideUntilItsCallerWaits) {
  if (most_nccl_ranks() < 2) GTEST_SKIP() << kTooFewDevices;
  run_nccl_ranks(2, [](Communicator& others, Device device) {
    SideStreamCommunicator ranks(others);
    const auto pool = make_device_pool(device);
    const Stream stream(pool), another(pool);
    const std::size_t before = pool->use().live_total;
    const CollectiveTicket job = begin_sum(counted(1000, 0, stream), ranks, stream);
    EXPECT_GE(pool->use().live_total, before + 4000);
    ranks.wait_for(job, another);
    EXPECT_GE(pool->use().live_total, before + 4000);
    ranks.wait_for(job, stream);
    EXPECT_EQ(pool->use().live_total, before);
    another.synchronize();
    stream.synchronize();
  });
}

TEST(NcclRanks, SendWhatLiesInHostMemoryToo) {
  if (most_nccl_ranks() < 2) GTEST_SKIP() << kTooFewDevices;
  run_nccl_ranks(2, [](Communicator& ranks, Device) {
    const Stream host = testing::rank_stream();
    const Tensor values = counted(5, static_cast<float>(ranks.rank()), host);
    ranks.all_reduce(values, Reduction::kSum, host);
    EXPECT_EQ(floats_of(values, host), (std::vector<float>{1, 3, 5, 7, 9}));
    EXPECT_GT(ranks.use().bytes_sent, 0u);
  });
}

/// As torchrun's ranks.
TEST(NcclRanks, WorkBesideHostsThatMeetByTcp) {
  if (most_nccl_ranks() < 2) GTEST_SKIP() << kTooFewDevices;
  testing::run_sockets(2, [](std::unique_ptr<Communicator> hosts) {
    const Device device{DeviceType::kCuda, hosts->rank()};
    const auto ranks = start_nccl_communicator(std::move(hosts), device, tested_nccl());
    const Stream stream(make_device_pool(device));
    const Tensor values = counted(3, static_cast<float>(ranks->rank()), stream);
    ranks->all_reduce(values, Reduction::kSum, stream);
    EXPECT_EQ(floats_of(values, stream), (std::vector<float>{1, 3, 5}));
    EXPECT_EQ(ranks->host_gather(concat(ranks->rank())), (std::vector<std::string>{"0", "1"}));
    ranks->barrier();
  });
}

TEST(NcclRanks, RefuseTensorsOfAnotherDevice) {
  if (most_nccl_ranks() < 1) GTEST_SKIP() << kTooFewDevices;
  run_nccl_ranks(1, [](Communicator& ranks, Device device) {
    const Stream stream(make_device_pool(device));
    const std::string told = message_of<DeviceError>(
        [&] { ranks.all_reduce(counted(5, 0, testing::rank_stream()), Reduction::kSum, stream); });
    EXPECT_NE(told.find("sends from cuda:0 by NCCL, got a tensor of cpu"), told.npos) << told;
  });
}

/// Streams come to collectives later than the host.
TEST(NcclRanks, TellHowFarTheirStreamsHaveCome) {
  if (most_nccl_ranks() < 2) GTEST_SKIP() << kTooFewDevices;
  std::promise<void> seen;
  run_nccl_ranks(2, [&](Communicator& ranks, Device device) {
    const Stream stream(make_device_pool(device));
    const Tensor values = counted(100, 1, stream);
    ranks.all_reduce(values, Reduction::kSum, stream);
    stream.synchronize();
    const RankProgress before = ranks.call_progress();
    EXPECT_EQ(before.entered, before.left);
    if (ranks.rank() == 1) seen.get_future().wait();
    for (int i = 0; i < 600; ++i) {
      if (i == 100 && ranks.rank() == 0) {
        const auto waits = [&] { return ranks.call_progress().entered == before.entered + 1; };
        while (!waits()) std::this_thread::yield();
        EXPECT_EQ(ranks.call_progress().left, before.left);
        seen.set_value();
      }
      ranks.all_reduce(values, Reduction::kMax, stream);
    }
    stream.synchronize();
    EXPECT_EQ(ranks.call_progress().left, before.left + 600);
    EXPECT_EQ(ranks.call_progress().entered, before.entered + 600);
  });
}

/// What all ranks are told, each as a process of its own.
std::string refusal_of(int ranks, const std::function<Device(int)>& device,
                       const std::function<WantedLibrary(int)>& library) {
  std::vector<std::string> told(static_cast<std::size_t>(ranks));
  {
    std::vector<std::jthread> threads;
    for (auto& one : make_thread_communicators(ranks)) {
      threads.emplace_back([&, hosts = std::move(one)]() mutable {
        const int rank = hosts->rank();
        told[static_cast<std::size_t>(rank)] = message_of<DeviceError>(
            [&] { start_nccl_communicator(std::move(hosts), device(rank), library(rank)); });
      });
    }
  }
  for (const std::string& one : told) EXPECT_EQ(one, told.front());
  return told.front();
}

TEST(NcclRanks, TwoOnOneDeviceAreRefusedByName) {
  if (most_nccl_ranks() < 2) GTEST_SKIP() << kTooFewDevices;
  const std::string told = refusal_of(
      3,
      [](int rank) {
        return Device{DeviceType::kCuda, rank == 1 ? 1 : 0};
      },
      [](int) { return tested_nccl(); });
  EXPECT_TRUE(told.starts_with("rank 0 (")) << told;
  EXPECT_NE(told.find(" and rank 2 ("), told.npos) << told;
  EXPECT_NE(told.find("have the same device "), told.npos) << told;
  EXPECT_EQ(told.find('\n'), told.npos);
}

TEST(NcclRanks, ARankWithoutNcclIsNamedOnAll) {
  if (most_nccl_ranks() < 2) GTEST_SKIP() << kTooFewDevices;
  const std::string told = refusal_of(
      2,
      [](int rank) {
        return Device{DeviceType::kCuda, rank};
      },
      [](int rank) {
        return rank == 0 ? tested_nccl()
                         : WantedLibrary{"NCCL", {"libnccl.so.1"}, {}, "install NCCL 2"};
      });
  EXPECT_TRUE(told.starts_with("rank 1 (")) << told;
  EXPECT_NE(told.find("no libnccl.so.1 opens"), told.npos) << told;
  EXPECT_NE(told.find("install NCCL 2"), told.npos) << told;
}

}  // namespace
}  // namespace hybrid_trainer
