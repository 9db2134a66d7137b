#include <gtest/gtest.h>

#include <future>

#include "hybrid_trainer/core/memory_pool.h"
#include "src/core/clock.h"
#include "tests/cuda/nccl_ranks.h"
#include "tests/distributed/rank_suite.h"
#include "tests/emulation/tested_nccl.h"

namespace hybrid_trainer {
namespace {

using namespace std::chrono_literals;
using emulation::fake_nccl;
using testing::gather;
using testing::parted;

/// NCCL failures on emulated devices.
class NcclFailures : public ::testing::Test {
 protected:
  void TearDown() override {
    fake_nccl().version = 22809;
    fake_nccl().questions = 2;
    fake_nccl().failing_rank = -1;
    fake_nccl().error = nccl::kSuccess;
    fake_nccl().abort_hangs = false;
  }
  static bool waits(const Communicator& ranks) {
    return ranks.call_progress().entered > ranks.call_progress().left;
  }
  static std::string loss_in(const std::function<void()>& call) {
    try {
      call();
    } catch (const RankLost& error) {
      return error.what();
    }
    return "";
  }
};

/// Like NCCL's, mismatched calls wait until they are aborted.
TEST_F(NcclFailures, MismatchedCallsWaitUntilAbort) {
  run_nccl_ranks(2, [](Communicator& ranks, Device device) {
    const Stream stream(make_device_pool(device));
    const Tensor values = parted(ranks.rank() == 0 ? 5 : 6, 0, ranks, stream);
    gather(values, ranks, stream);
    while (!waits(ranks)) std::this_thread::yield();
    std::this_thread::sleep_for(200ms);
    EXPECT_TRUE(waits(ranks));
    ranks.abort("they call different collectives");
    stream.synchronize();
    EXPECT_NE(loss_in([&] {
                gather(values, ranks, stream);
              }).find("gave up: they call different collectives"),
              std::string::npos);
  });
}

TEST_F(NcclFailures, AsyncErrorEndsPendingCalls) {
  std::promise<void> ended;
  run_nccl_ranks(2, [&](Communicator& ranks, Device device) {
    if (ranks.rank() == 0) return ended.get_future().wait();  // and never joins
    const Stream stream(make_device_pool(device));
    const Tensor values = parted(5, 0, ranks, stream);
    gather(values, ranks, stream);
    fake_nccl().failing_rank = 1;
    fake_nccl().error = nccl::kRemoteError;
    stream.synchronize();
    EXPECT_EQ(loss_in([&] { gather(values, ranks, stream); }),
              "NCCL failed with remote process exited or there was a network error");
    ended.set_value();
  });
}

TEST_F(NcclFailures, HangingAbortTimesOut) {
  std::promise<void> ended;
  const NcclLimits limits{.end = 300ms};
  run_nccl_ranks(
      2,
      [&](Communicator& ranks, Device device) {
        if (ranks.rank() == 0) return ended.get_future().wait();
        const Stream stream(make_device_pool(device));
        const Tensor values = parted(5, 0, ranks, stream);
        gather(values, ranks, stream);
        fake_nccl().abort_hangs = true;
        const auto before = Clock::now();
        ranks.abort("the disk is full");
        EXPECT_EQ(fake_nccl().aborted_on, device.index);
        EXPECT_GE(Clock::now() - before, 300ms);
        EXPECT_LT(Clock::now() - before, 5s);
        fake_nccl().abort_hangs = false;  // lets the stream end
        stream.synchronize();
        ended.set_value();
      },
      limits);
}

TEST_F(NcclFailures, StartTimesOutWithoutAllRanks) {
  fake_nccl().questions = 1 << 30;
  try {
    run_nccl_ranks(2, [](Communicator&, Device) { FAIL() << "the ranks have not connected"; },
                   {.start = 300ms});
    FAIL() << "it should not have started";
  } catch (const DeviceError& error) {
    const std::string told = error.what();
    EXPECT_NE(told.find("cannot start: NCCL did not connect to all ranks within 0.3 s"), told.npos)
        << told;
  }
}

TEST_F(NcclFailures, OldLibraryIsRefusedWithRequiredVersion) {
  fake_nccl().version = 22602;
  try {
    run_nccl_ranks(1, [](Communicator&, Device) { FAIL() << "version 2.26 was accepted"; });
    FAIL() << "it should not have started";
  } catch (const DeviceError& error) {
    const std::string told = error.what();
    EXPECT_NE(told.find("is version 2.26.2, want 2.27.0 or newer; "), told.npos) << told;
  }
}

/// The library itself makes the check, like the real one.
TEST_F(NcclFailures, LibraryRefusesTwoRanksOnOneDevice) {
  const SharedLibrary library = SharedLibrary::open(tested_nccl());
  nccl::Functions functions;
  nccl::visit_functions(functions, [&](const char* name, auto& function) {
    function =
        library.function<std::remove_pointer_t<std::remove_reference_t<decltype(function)>>>(name);
  });
  nccl::UniqueId id{};
  functions.ncclGetUniqueId(&id);
  nccl::Config config;
  std::array<ncclComm*, 2> ranks{};
  std::array<nccl::Result, 2> states{};
  for (int rank = 0; rank < 2; ++rank)
    functions.ncclCommInitRankConfig(&ranks[static_cast<std::size_t>(rank)], 2, id, rank, &config);
  for (std::size_t rank = 0; rank < 2; ++rank)
    functions.ncclCommGetAsyncError(ranks[rank], &states[rank]);
  EXPECT_EQ(states[0], nccl::kInProgress);
  EXPECT_EQ(states[1], nccl::kInvalidUsage);
  for (ncclComm* const rank : ranks) functions.ncclCommAbort(rank);
}

}  // namespace
}  // namespace hybrid_trainer
