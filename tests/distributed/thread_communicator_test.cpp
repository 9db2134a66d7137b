#include "src/distributed/host_ranks.h"

#include <gtest/gtest.h>

#include "tests/distributed/rank_suite.h"

namespace hybrid_trainer {
namespace {

using testing::counted;
using testing::message_of;
using testing::rank_stream;

TEST(ThreadRanks, ErrorOnOneRankAbortsOthers) {
  std::vector<std::string> told(3);
  const auto rank = [&](Communicator& ranks) {
    if (ranks.rank() == 1) throw DataError("shard 4 is cut short");
    told[static_cast<std::size_t>(ranks.rank())] = message_of<RankLost>([&] { ranks.barrier(); });
  };
  EXPECT_EQ(message_of<DataError>([&] { run_thread_ranks(3, rank); }), "shard 4 is cut short");
  for (const int other : {0, 2}) {
    EXPECT_EQ(told[static_cast<std::size_t>(other)],
              concat("rank 1 gave up: shard 4 is cut short; rank ", other,
                     " was in barrier, its call 1"));
  }
}

TEST(ThreadRanks, EndedRankIsReported) {
  const auto rank = [](Communicator& ranks) {
    ranks.barrier();
    if (ranks.rank() == 2) return;
    const std::string told = message_of<RankLost>([&] { ranks.barrier(); });
    EXPECT_NE(told.find("has ended"), told.npos) << told;
    EXPECT_NE(told.find(concat("; rank ", ranks.rank(), " was in barrier, its call 2")), told.npos)
        << told;
  };
  run_thread_ranks(3, rank);
}

TEST(ThreadRanks, MismatchedCountIsReported) {
  const auto rank = [](Communicator& ranks) {
    const Stream stream = rank_stream();
    const Tensor values = counted(4, 0, stream);
    if (ranks.rank() == 0) {
      ranks.all_to_all(values, {0, 4}, values, {0, 0}, stream);
    } else {
      ranks.all_to_all(values, {0, 0}, values, {3, 0}, stream);
    }
  };
  const std::string told = message_of<CollectiveMismatch>([&] { run_thread_ranks(2, rank); });
  EXPECT_EQ(told,
            "the ranks call different collectives: rank 0 waits for all_to_all of 4 f32, its call "
            "1 from rank 1, which called all_to_all of 3 f32, its call 1");
}

TEST(ThreadRanks, RequiresAtLeastOneRank) { EXPECT_THROW(make_thread_communicators(0), Error); }

}  // namespace
}  // namespace hybrid_trainer
