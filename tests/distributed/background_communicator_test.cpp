#include "src/distributed/decorated_communicator.h"

#include <gtest/gtest.h>

#include <chrono>
#include <thread>

#include "src/distributed/host_ranks.h"
#include "tests/distributed/rank_suite.h"

namespace hybrid_trainer {
namespace {

using testing::counted;
using testing::floats_of;
using testing::rank_stream;

/// Whether the flag becomes true within ten seconds.
bool comes_to(const std::atomic<bool>& flag) {
  for (int i = 0; i < 10000 && !flag; ++i)
    std::this_thread::sleep_for(std::chrono::milliseconds(1));
  return flag;
}

TEST(BackgroundCommunicator, RunsCollectivesInBackground) {
  std::atomic<bool> has_begun = false;
  run_thread_ranks(2, [&](Communicator& inner) {
    BackgroundCommunicator ranks(inner, true);
    const Stream stream = rank_stream();
    const Tensor values = counted(3, static_cast<float>(10 * ranks.rank()), stream);
    if (ranks.rank() == 1) {  // rank 0 does not wait for this one
      EXPECT_TRUE(comes_to(has_begun));
    }
    const CollectiveTicket job = ranks.begin(
        [values](Communicator& all, const Stream& background) {
          testing::broadcast(values, 1, all, background);
        },
        stream);
    has_begun = true;
    ranks.wait_for(job, stream);
    EXPECT_EQ(floats_of(values, stream), (std::vector<float>{10, 11, 12}));
  });
}

TEST(BackgroundCommunicator, RunsCallsInOrder) {
  for (const bool background : {true, false}) {
    run_thread_ranks(3, [&](Communicator& inner) {
      BackgroundCommunicator ranks(inner, background);
      const Stream stream = rank_stream();
      std::vector<Tensor> all;
      for (int root = 0; root < 3; ++root) {
        all.push_back(counted(2, static_cast<float>(100 * ranks.rank()), stream));
        ranks.begin(
            [values = all.back(), root](Communicator& others, const Stream& own) {
              testing::broadcast(values, root, others, own);
            },
            stream);
      }
      EXPECT_EQ(ranks.host_gather("x").size(), 3u);  // after all of them
      for (int root = 0; root < 3; ++root)
        EXPECT_EQ(floats_of(all[static_cast<std::size_t>(root)], stream)[0],
                  static_cast<float>(100 * root));
      EXPECT_EQ(ranks.use().calls, inner.use().calls);
      EXPECT_GT(ranks.use().exposed_seconds, 0);
    });
  }
}

TEST(BackgroundCommunicator, WaitRethrowsBackgroundError) {
  run_thread_ranks(2, [&](Communicator& inner) {
    BackgroundCommunicator ranks(inner, true);
    const Stream stream = rank_stream();
    const Tensor values = counted(3 + ranks.rank(), 0, stream);
    const CollectiveTicket job = ranks.begin(
        [values](Communicator& all, const Stream& own) { testing::broadcast(values, 0, all, own); },
        stream);
    EXPECT_THROW(ranks.wait_for(job, stream), CollectiveMismatch);
  });
}

/// Otherwise rank 0 would wait for rank 1, which waits until rank 0 has ended.
TEST(BackgroundCommunicator, ErrorOnRankEndsPendingCollectives) {
  std::atomic<bool> has_ended = false;
  const auto rank = [&](Communicator& inner) {
    if (inner.rank() == 1) {
      EXPECT_TRUE(comes_to(has_ended));
      return;
    }
    try {
      BackgroundCommunicator ranks(inner, true);
      ranks.begin([](Communicator& all, const Stream&) { all.barrier(); }, rank_stream());
      throw UsageError("rank 0 met this");
    } catch (const UsageError&) {
      has_ended = true;
      EXPECT_THROW(inner.barrier(), RankLost);
    }
  };
  run_thread_ranks(2, rank);
}

TEST(SimulatedLink, TakesAtLeastConfiguredTime) {
  using Clock = std::chrono::steady_clock;
  run_thread_ranks(2, [&](Communicator& inner) {
    const Stream stream = rank_stream();
    const Tensor values = counted(5000, static_cast<float>(inner.rank()), stream);
    SimulatedLink slow(inner, {.bytes_per_second = 1e6});
    SimulatedLink far(inner, {.latency = std::chrono::milliseconds(20)});
    const auto seconds_of = [&](Communicator& ranks) {
      const auto begin = Clock::now();
      testing::broadcast(values, 0, ranks, stream);
      return std::chrono::duration<double>(Clock::now() - begin).count();
    };
    EXPECT_GE(seconds_of(slow), 0.02);  // 20,000 bytes, sent or received
    EXPECT_GE(seconds_of(far), 0.02);
    EXPECT_EQ(floats_of(values, stream), floats_of(counted(5000, 0, stream), stream));
    EXPECT_EQ(slow.use().bytes_sent, inner.use().bytes_sent);
  });
}

}  // namespace
}  // namespace hybrid_trainer
