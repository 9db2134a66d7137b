#include "src/distributed/communicator.h"

#include <gtest/gtest.h>

#include "hybrid_trainer/kernels/elementwise.h"
#include "tests/distributed/rank_suite.h"

namespace hybrid_trainer {
namespace {

using testing::counted;
using testing::floats_of;
using testing::tensor_of;
using testing::values_of;
using Counts = std::vector<std::int64_t>;

class CommunicatorContract : public ::testing::TestWithParam<testing::RankCase> {
 protected:
  static void run(const testing::RankBody& rank) { GetParam().run(rank); }
};

constexpr std::int64_t kCounts[] = {0, 1, 2, 3, 7, 64, 1001};

TEST_P(CommunicatorContract, RanksStartAtZero) {
  run([](Communicator& ranks, const Stream&) {
    EXPECT_GE(ranks.rank(), 0);
    EXPECT_LT(ranks.rank(), ranks.size());
    EXPECT_TRUE(GetParam().name.starts_with(ranks.name()));
  });
}

TEST_P(CommunicatorContract, AllGatherPutsShardsInOrder) {
  run([](Communicator& ranks, const Stream& stream) {
    for (const std::int64_t n : kCounts) {
      const Shard mine = shard_of(n, ranks.rank(), ranks.size());
      const Tensor shard = counted(mine.elements(), static_cast<float>(mine.first), stream);
      const Tensor values = counted(n, 5000, stream);
      ranks.all_gather(values, shard, stream);
      EXPECT_EQ(floats_of(values, stream), floats_of(counted(n, 0, stream), stream));
    }
  });
}

TEST_P(CommunicatorContract, GatherPartsAcceptsAnyLengths) {
  run([](Communicator& ranks, const Stream& stream) {
    Counts counts;  // 0, 3, 6, … and 7 for the last one
    std::int64_t n = 0, mine = 0;
    for (int rank = 0; rank < ranks.size(); ++rank) {
      if (rank == ranks.rank()) mine = n;
      counts.push_back(rank + 1 == ranks.size() ? 7 : 3 * rank);
      n += counts.back();
    }
    const Tensor values = counted(n, 5000, stream);
    const std::int64_t own = counts[static_cast<std::size_t>(ranks.rank())];
    if (own > 0)
      copy(values.rows(mine, mine + own), counted(own, static_cast<float>(mine), stream), stream);
    const std::uint64_t before = ranks.use().bytes_sent;
    ranks.gather_parts(values, counts, stream);
    EXPECT_EQ(floats_of(values, stream), floats_of(counted(n, 0, stream), stream));
    EXPECT_EQ(ranks.use().bytes_sent - before,
              4 * static_cast<std::uint64_t>(own * (ranks.size() - 1)));
  });
}

TEST_P(CommunicatorContract, AllToAllFollowsCounts) {
  run([](Communicator& ranks, const Stream& stream) {
    Counts send, receive;
    std::vector<float> wanted;
    for (int peer = 0; peer < ranks.size(); ++peer) {  // a sends b a + 2b elements, a + 100b
      send.push_back(ranks.rank() + 2 * peer);
      receive.push_back(peer + 2 * ranks.rank());
      for (int i = 0; i < peer + 2 * ranks.rank(); ++i)
        wanted.push_back(static_cast<float>(peer + 100 * ranks.rank()));
    }
    std::vector<float> values;
    for (int peer = 0; peer < ranks.size(); ++peer) {
      for (int i = 0; i < ranks.rank() + 2 * peer; ++i)
        values.push_back(static_cast<float>(ranks.rank() + 100 * peer));
    }
    const Tensor sent = tensor_of(values, stream);
    const Tensor received = counted(static_cast<std::int64_t>(wanted.size()), -1, stream);
    ranks.all_to_all(received, receive, sent, send, stream);
    EXPECT_EQ(floats_of(received, stream), wanted);
  });
}

TEST_P(CommunicatorContract, HostGatherKeepsLengths) {
  run([](Communicator& ranks, const Stream&) {
    const std::vector<std::string> all =
        ranks.host_gather(std::string(static_cast<std::size_t>(3 * ranks.rank()), 'x') + "!");
    ASSERT_EQ(all.size(), static_cast<std::size_t>(ranks.size()));
    for (std::size_t rank = 0; rank < all.size(); ++rank)
      EXPECT_EQ(all[rank], std::string(3 * rank, 'x') + "!");
  });
}

TEST_P(CommunicatorContract, BytesSentMatchFormulas) {
  run([](Communicator& ranks, const Stream& stream) {
    const auto size = static_cast<std::uint64_t>(ranks.size());
    const std::int64_t n = 60;  // divisible by 1 to 5
    const Tensor values = counted(n, 0, stream), shard = counted(n / ranks.size(), 0, stream);
    const auto sent_by = [&](const std::function<void()>& call) {
      const std::uint64_t before = ranks.use().bytes_sent;
      call();
      return ranks.use().bytes_sent - before;
    };
    const std::uint64_t part = 4 * 60 * (size - 1) / size;
    EXPECT_EQ(sent_by([&] { ranks.all_gather(values, shard, stream); }), part);
    EXPECT_EQ(sent_by([&] { ranks.barrier(); }), 0u);
  });
}

TEST_P(CommunicatorContract, RejectsMismatchedShapes) {
  run([](Communicator& ranks, const Stream& stream) {
    const Tensor values = counted(8, 0, stream);
    const auto own = static_cast<std::int64_t>(ranks.size());
    const Counts none(static_cast<std::size_t>(own), 0);
    EXPECT_THROW(ranks.all_gather(values, counted(9, 0, stream), stream), ShapeMismatch);
    EXPECT_THROW(ranks.all_to_all(values, none, values, Counts(none.size() + 1), stream),
                 ShapeMismatch);
    EXPECT_THROW(ranks.all_to_all(values, Counts(none.size(), 9), values, none, stream),
                 ShapeMismatch);
    EXPECT_THROW(ranks.gather_parts(values, Counts(none.size(), 9), stream), ShapeMismatch);
    ranks.barrier();  // nothing has started
  });
}

/// No rank waits for a stream between the calls.
TEST_P(CommunicatorContract, CallsFollowStreamOrder) {
  run([](Communicator& ranks, const Stream& stream) {
    const Tensor all = testing::parted(1001, 1, ranks, stream);
    for (int round = 0; round < 5; ++round) {
      testing::gather(all, ranks, stream);
      kernels::add(all, all, all, stream);
    }
    const std::vector<float> got = testing::sums_of(all, ranks, stream);
    for (std::size_t i = 0; i < got.size(); ++i)
      ASSERT_EQ(got[i], static_cast<float>(32 * ranks.size()) * static_cast<float>(i + 1)) << i;
  });
}

TEST_P(CommunicatorContract, MismatchedCallsAreReportedOnEachRank) {
  if (!GetParam().blocks_host) GTEST_SKIP() << "streams wait until RankWatch ends the job";
  run([](Communicator& ranks, const Stream& stream) {
    if (ranks.size() == 1) return;
    const bool last = ranks.rank() == ranks.size() - 1;
    const auto message_of = [](const std::function<void()>& call) -> std::string {
      try {
        call();
      } catch (const CollectiveMismatch& error) {
        return error.what();
      }
      return "";
    };
    const Tensor values = testing::parted(last ? 6 : 5, 0, ranks, stream);
    const std::string counts = message_of([&] { testing::gather(values, ranks, stream); });
    const auto told = [&](int rank, int elements) {
      return concat("rank ", rank, " called all_gather of ", elements * ranks.size(),
                    " f32, its call ");
    };
    EXPECT_NE(counts.find(told(0, 5)), counts.npos) << counts;
    EXPECT_NE(counts.find(told(ranks.size() - 1, 6)), counts.npos) << counts;
    if (ranks.size() <= 4) {  // the same total, divided differently
      Counts parts(static_cast<std::size_t>(ranks.size()), 1);
      parts[last ? 0 : 1] = 2;
      EXPECT_NE(message_of([&] {
                  ranks.gather_parts(values.rows(0, 5), parts, stream);
                }).find("gather_parts"),
                std::string::npos);
    }
    const std::string operations =
        message_of([&] { last ? ranks.barrier() : testing::gather(values, ranks, stream); });
    EXPECT_NE(operations.find(concat("rank ", ranks.size() - 1, " called barrier, its call ")),
              operations.npos)
        << operations;
  });
}

std::string case_name(const ::testing::TestParamInfo<testing::RankCase>& info) {
  return info.param.name;
}

GTEST_ALLOW_UNINSTANTIATED_PARAMETERIZED_TEST(CommunicatorContract);
INSTANTIATE_TEST_SUITE_P(All, CommunicatorContract, ::testing::ValuesIn(testing::rank_cases()),
                         case_name);

}  // namespace
}  // namespace hybrid_trainer
