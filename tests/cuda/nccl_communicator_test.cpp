#include "src/distributed/nccl_communicator.h"

#include <gtest/gtest.h>

#include <chrono>
#include <future>
#include <thread>

#include "hybrid_trainer/core/memory_pool.h"
#include "src/distributed/decorated_communicator.h"
#include "src/distributed/host_ranks.h"
#include "tests/cuda/nccl_ranks.h"
#include "tests/distributed/rank_suite.h"
#include "tests/distributed/socket_ranks.h"

namespace hybrid_trainer {
namespace {

using testing::counted;
using testing::gather;
using testing::message_of;
using testing::parted;
using testing::sums_of;

TEST(NcclRanks, EnqueueWithoutWaitingForPeers) {
  if (most_nccl_ranks() < 2) GTEST_SKIP() << kTooFewDevices;
  std::promise<void> enqueued;
  run_nccl_ranks(2, [&](Communicator& ranks, Device device) {
    const Stream stream(make_device_pool(device));
    const Tensor values = parted(100, 1, ranks, stream);
    gather(values, ranks, stream);  // connects them
    stream.synchronize();
    if (ranks.rank() == 1) enqueued.get_future().wait();
    for (int i = 0; i < 3; ++i) gather(values, ranks, stream);
    if (ranks.rank() == 0) enqueued.set_value();
    EXPECT_EQ(sums_of(values, ranks, stream)[0], 2);
  });
}

using RankBeside = std::function<void(Communicator&, const Stream&, std::promise<void>&)>;

/// Runs two ranks that communicate in side streams; the second waits for the first one's promise.
void run_beside(const RankBeside& first, const testing::RankBody& second) {
  std::promise<void> may_go_on;
  run_nccl_ranks(2, [&](Communicator& others, Device device) {
    SideStreamCommunicator ranks(others);
    const Stream stream(make_device_pool(device));
    gather(parted(1000, 1, ranks, stream), ranks, stream);
    stream.synchronize();
    if (ranks.rank() == 0) return first(ranks, stream, may_go_on);
    may_go_on.get_future().wait();
    second(ranks, stream);
  });
}

CollectiveTicket begin_gather(const Tensor& values, Communicator& ranks, const Stream& stream) {
  return ranks.begin(
      [values](Communicator& all, const Stream& background) { gather(values, all, background); },
      stream);
}

/// Whether the stream finishes its work within a generous time.
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

/// Also while the other rank has not reached the call.
TEST(NcclRanks, SideStreamBlocksCallerOnlyAtWait) {
  if (most_nccl_ranks() < 2) GTEST_SKIP() << kTooFewDevices;
  run_beside(
      [](Communicator& ranks, const Stream& stream, std::promise<void>& other_may_go_on) {
        const Tensor sent = parted(1000, 1, ranks, stream), more = parted(1000, 2, ranks, stream);
        const CollectiveTicket job = begin_gather(sent, ranks, stream);
        const CollectiveTicket later = begin_gather(more, ranks, stream);
        EXPECT_TRUE(comes_to_its_end(stream));
        ranks.wait_for(job, stream);
        EXPECT_TRUE(waits(stream));
        other_may_go_on.set_value();
        EXPECT_EQ(sums_of(sent, ranks, stream)[5], 16);
        ranks.wait_for(later, stream);
        EXPECT_EQ(sums_of(more, ranks, stream)[5], 27);
      },
      [](Communicator& ranks, const Stream& stream) {
        begin_gather(parted(1000, 5, ranks, stream), ranks, stream);
        ranks.wait_for(begin_gather(parted(1000, 15, ranks, stream), ranks, stream), stream);
        stream.synchronize();
      });
}

TEST(NcclRanks, RunLaterCallsAfterPendingCollectives) {
  if (most_nccl_ranks() < 2) GTEST_SKIP() << kTooFewDevices;
  run_beside(
      [](Communicator& ranks, const Stream& stream, std::promise<void>& other_may_go_on) {
        const Tensor sent = parted(1000, 1, ranks, stream), own = parted(10, 7, ranks, stream);
        begin_gather(sent, ranks, stream);
        gather(own, ranks, stream);
        EXPECT_TRUE(waits(stream));
        other_may_go_on.set_value();
        EXPECT_EQ(sums_of(own, ranks, stream)[0], 14);
        EXPECT_EQ(sums_of(sent, ranks, stream)[0], 2);
      },
      [](Communicator& ranks, const Stream& stream) {
        begin_gather(parted(1000, 1, ranks, stream), ranks, stream);
        gather(parted(10, 7, ranks, stream), ranks, stream);
        stream.synchronize();
      });
}

/// Memory freed in the meantime would otherwise be reused by the caller's next work.
TEST(NcclRanks, KeepSentTensorsAliveUntilWait) {
  if (most_nccl_ranks() < 2) GTEST_SKIP() << kTooFewDevices;
  run_nccl_ranks(2, [](Communicator& others, Device device) {
    SideStreamCommunicator ranks(others);
    const auto pool = make_device_pool(device);
    const Stream stream(pool), another(pool);
    const std::size_t before = pool->use().live_total;
    const CollectiveTicket job = begin_gather(parted(1000, 0, ranks, stream), ranks, stream);
    EXPECT_GE(pool->use().live_total, before + 8000);
    ranks.wait_for(job, another);
    EXPECT_GE(pool->use().live_total, before + 8000);
    ranks.wait_for(job, stream);
    EXPECT_EQ(pool->use().live_total, before);
    another.synchronize();
    stream.synchronize();
  });
}

TEST(NcclRanks, SendHostMemoryTensors) {
  if (most_nccl_ranks() < 2) GTEST_SKIP() << kTooFewDevices;
  run_nccl_ranks(2, [](Communicator& ranks, Device) {
    const Stream host = testing::rank_stream();
    const Tensor values = parted(5, static_cast<float>(ranks.rank()), ranks, host);
    gather(values, ranks, host);
    EXPECT_EQ(sums_of(values, ranks, host), (std::vector<float>{1, 3, 5, 7, 9}));
    EXPECT_GT(ranks.use().bytes_sent, 0u);
  });
}

/// Like ranks started by torchrun.
TEST(NcclRanks, WorkWithTcpRendezvous) {
  if (most_nccl_ranks() < 2) GTEST_SKIP() << kTooFewDevices;
  testing::run_sockets(2, [](std::unique_ptr<Communicator> hosts) {
    const Device device{DeviceType::kCuda, hosts->rank()};
    const auto ranks = start_nccl_communicator(std::move(hosts), device, tested_nccl());
    const Stream stream(make_device_pool(device));
    const Tensor values = parted(3, static_cast<float>(ranks->rank()), *ranks, stream);
    gather(values, *ranks, stream);
    EXPECT_EQ(sums_of(values, *ranks, stream), (std::vector<float>{1, 3, 5}));
    EXPECT_EQ(ranks->host_gather(concat(ranks->rank())), (std::vector<std::string>{"0", "1"}));
    ranks->barrier();
  });
}

/// All calls that need no peer, so one device suffices.
TEST(NcclRanks, SingleRankSupportsAllCollectives) {
  if (most_nccl_ranks() < 1) GTEST_SKIP() << kTooFewDevices;
  run_nccl_ranks(1, [](Communicator& alone, Device device) {
    SideStreamCommunicator ranks(alone);
    const Stream stream(make_device_pool(device));
    const Tensor values = counted(1001, 1, stream);
    const std::vector<float> wanted = testing::floats_of(values, stream);
    const auto got_by = [&](const std::function<void(const Tensor&)>& call) {
      const Tensor got = counted(1001, -9, stream);
      call(got);
      return testing::floats_of(got, stream);
    };
    const RankProgress before = ranks.call_progress();
    EXPECT_EQ(got_by([&](const Tensor& got) { ranks.all_gather(got, values, stream); }), wanted);
    EXPECT_EQ(
        got_by([&](const Tensor& got) { ranks.all_to_all(got, {1001}, values, {1001}, stream); }),
        wanted);
    EXPECT_EQ(got_by([&](const Tensor& got) {
                const auto job = [=](Communicator& all, const Stream& background) {
                  all.all_gather(got, values, background);
                };
                ranks.wait_for(ranks.begin(job, stream), stream);
              }),
              wanted);
    ranks.gather_parts(values, {1001}, stream);
    EXPECT_EQ(testing::floats_of(values, stream), wanted);
    EXPECT_EQ(ranks.call_progress().entered, before.entered + 4);
    EXPECT_EQ(ranks.call_progress().left, before.left + 4);
    EXPECT_EQ(ranks.use().bytes_sent, 0u);
    ranks.barrier();
    EXPECT_EQ(ranks.host_gather("alone"), std::vector<std::string>{"alone"});
  });
}

TEST(NcclRanks, RefuseTensorsOnAnotherDevice) {
  if (most_nccl_ranks() < 1) GTEST_SKIP() << kTooFewDevices;
  run_nccl_ranks(1, [](Communicator& ranks, Device device) {
    const Stream stream(make_device_pool(device));
    const std::string told = message_of<DeviceError>(
        [&] { gather(parted(5, 0, ranks, testing::rank_stream()), ranks, stream); });
    EXPECT_NE(told.find("communicates on cuda:0 with NCCL, but the tensor is on cpu"), told.npos)
        << told;
  });
}

/// Streams reach collectives later than the host does.
TEST(NcclRanks, ReportStreamProgress) {
  if (most_nccl_ranks() < 2) GTEST_SKIP() << kTooFewDevices;
  std::promise<void> seen;
  run_nccl_ranks(2, [&](Communicator& ranks, Device device) {
    const Stream stream(make_device_pool(device));
    const Tensor values = parted(100, 1, ranks, stream);
    gather(values, ranks, stream);
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
      gather(values, ranks, stream);
    }
    stream.synchronize();
    EXPECT_EQ(ranks.call_progress().left, before.left + 600);
    EXPECT_EQ(ranks.call_progress().entered, before.entered + 600);
  });
}

/// Returns the error that all ranks report, each in a separate process.
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

TEST(NcclRanks, RefuseTwoRanksOnOneDevice) {
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

TEST(NcclRanks, ReportRankWithoutNcclOnAllRanks) {
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
  EXPECT_NE(told.find("cannot open libnccl.so.1"), told.npos) << told;
  EXPECT_NE(told.find("install NCCL 2"), told.npos) << told;
}

}  // namespace
}  // namespace hybrid_trainer
