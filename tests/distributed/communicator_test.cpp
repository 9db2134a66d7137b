#include "hybrid_trainer/distributed/communicator.h"

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

TEST_P(CommunicatorContract, RanksAreCountedFromZero) {
  run([](Communicator& ranks, const Stream&) {
    EXPECT_GE(ranks.rank(), 0);
    EXPECT_LT(ranks.rank(), ranks.size());
    EXPECT_TRUE(GetParam().name.starts_with(ranks.name()));
  });
}

TEST_P(CommunicatorContract, AllReduceGivesEachRankTheSame) {
  run([](Communicator& ranks, const Stream& stream) {
    const int size = ranks.size();
    for (const std::int64_t n : kCounts) {
      for (const Reduction reduction : {Reduction::kSum, Reduction::kMin, Reduction::kMax}) {
        const Tensor values = counted(n, static_cast<float>(ranks.rank()), stream);
        ranks.all_reduce(values, reduction, stream);
        const std::vector<float> got = floats_of(values, stream);
        for (std::size_t i = 0; i < got.size(); ++i) {
          const auto at = static_cast<float>(i);
          const float sum =
              static_cast<float>(size) * at + static_cast<float>(size * (size - 1) / 2);
          const float largest = at + static_cast<float>(size - 1);
          EXPECT_EQ(got[i], reduction == Reduction::kSum   ? sum
                            : reduction == Reduction::kMin ? at
                                                           : largest);
        }
      }
    }
  });
}

TEST_P(CommunicatorContract, SumsAreInOrderOfRank) {
  if (!GetParam().blocks_host) GTEST_SKIP() << "the library's own order";
  run([](Communicator& ranks, const Stream& stream) {
    std::vector<float> mine, wanted;
    for (int i = 0; i < 3; ++i) {
      const auto part = [&](int rank) { return 1.0f / static_cast<float>(3 + i + 7 * rank); };
      mine.push_back(part(ranks.rank()));
      wanted.push_back(part(0));
      for (int rank = 1; rank < ranks.size(); ++rank) wanted.back() += part(rank);
    }
    const Tensor values = tensor_of(mine, stream);
    ranks.all_reduce(values, Reduction::kSum, stream);
    EXPECT_EQ(floats_of(values, stream), wanted);
  });
}

TEST_P(CommunicatorContract, ReducesIntegersAndDoubles) {
  run([](Communicator& ranks, const Stream& stream) {
    const Tensor count = tensor_of<std::int32_t>({16777217 + ranks.rank()}, stream);  // no f32
    const Tensor share = tensor_of<double>({1e-9}, stream);
    ranks.all_reduce(count, Reduction::kMax, stream);
    ranks.all_reduce(share, Reduction::kSum, stream);
    EXPECT_EQ(values_of<std::int32_t>(count, stream)[0], 16777217 + ranks.size() - 1);
    EXPECT_NEAR(values_of<double>(share, stream)[0], 1e-9 * ranks.size(), 1e-18);
  });
}

TEST_P(CommunicatorContract, ReduceScatterGivesEachRankItsShard) {
  run([](Communicator& ranks, const Stream& stream) {
    for (const std::int64_t n : kCounts) {
      const Shard mine = shard_of(n, ranks.rank(), ranks.size());
      const Tensor values = counted(n, 1, stream), shard = counted(mine.elements(), -9, stream);
      ranks.reduce_scatter(shard, values, Reduction::kSum, stream);
      const std::vector<float> got = floats_of(shard, stream);
      for (std::size_t i = 0; i < got.size(); ++i)
        EXPECT_EQ(got[i],
                  static_cast<float>(ranks.size() * (mine.first + 1 + static_cast<int>(i))));
    }
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

TEST_P(CommunicatorContract, GatherPartsTakesAnyLengths) {
  run([](Communicator& ranks, const Stream& stream) {
    Counts counts;  // 0, 3, 6, … and the last one 7
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

TEST_P(CommunicatorContract, AllToAllSendsWhatTheCountsSay) {
  run([](Communicator& ranks, const Stream& stream) {
    Counts send, receive;
    std::vector<float> wanted;
    for (int peer = 0; peer < ranks.size(); ++peer) {  // rank a sends b a + 2b elements a + 100b
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

TEST_P(CommunicatorContract, BroadcastComesFromEachRoot) {
  run([](Communicator& ranks, const Stream& stream) {
    for (int root = 0; root < ranks.size(); ++root) {
      const auto bytes_of = [](int rank) {
        return std::vector<std::uint8_t>(5, static_cast<std::uint8_t>(rank + 1));
      };
      const Tensor values = tensor_of(bytes_of(ranks.rank()), stream);
      ranks.broadcast(values, root, stream);
      EXPECT_EQ(values_of<std::uint8_t>(values, stream), bytes_of(root));
    }
  });
}

TEST_P(CommunicatorContract, MessagesGoRoundInTheirOrder) {
  run([](Communicator& ranks, const Stream& stream) {
    if (ranks.size() == 1) return;
    const int next = (ranks.rank() + 1) % ranks.size(),
              before = (ranks.rank() + ranks.size() - 1) % ranks.size();
    const auto send = [&] {
      for (const float first : {10.0f, 20.0f})
        ranks.send(counted(3, first + static_cast<float>(ranks.rank()), stream), next, stream);
    };
    const auto receive = [&] {
      for (const float first : {10.0f, 20.0f}) {
        const Tensor got = counted(3, 0, stream);
        ranks.receive(got, before, stream);
        EXPECT_EQ(floats_of(got, stream),
                  floats_of(counted(3, first + static_cast<float>(before), stream), stream));
      }
    };
    if (ranks.rank() == 0) {
      send();
      receive();
    } else {
      receive();
      send();
    }
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

TEST_P(CommunicatorContract, BytesSentAreThoseOfTheFormulas) {
  run([](Communicator& ranks, const Stream& stream) {
    const auto size = static_cast<std::uint64_t>(ranks.size());
    const std::int64_t n = 60;  // divides by 1 to 5
    const Tensor values = counted(n, 0, stream), shard = counted(n / ranks.size(), 0, stream);
    const auto sent_by = [&](const std::function<void()>& call) {
      const std::uint64_t before = ranks.use().bytes_sent;
      call();
      return ranks.use().bytes_sent - before;
    };
    const std::uint64_t part = 4 * 60 * (size - 1) / size;
    EXPECT_EQ(sent_by([&] { ranks.all_reduce(values, Reduction::kSum, stream); }), 2 * part);
    EXPECT_EQ(sent_by([&] { ranks.reduce_scatter(shard, values, Reduction::kSum, stream); }), part);
    EXPECT_EQ(sent_by([&] { ranks.all_gather(values, shard, stream); }), part);
    EXPECT_EQ(sent_by([&] { ranks.barrier(); }), 0u);
  });
}

TEST_P(CommunicatorContract, RefusesWhatDoesNotFit) {
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
    EXPECT_THROW(ranks.broadcast(values, ranks.size(), stream), Error);
    EXPECT_THROW(ranks.send(values, ranks.rank(), stream), Error);
    const Tensor halves = Tensor::zeros({2}, DType::kBF16, MemoryKind::kWorkspace, stream);
    EXPECT_THROW(ranks.all_reduce(halves, Reduction::kSum, stream), Error);
    ranks.barrier();  // nothing was begun
  });
}

/// Nobody waits for a stream between its calls.
TEST_P(CommunicatorContract, CallsAreOrderedAsOtherWorkOfTheStream) {
  run([](Communicator& ranks, const Stream& stream) {
    const auto size = static_cast<float>(ranks.size());
    const Tensor values = counted(1001, 1, stream), all = counted(ranks.size(), 0, stream);
    const Tensor mine = tensor_of<float>({1.0f}, stream);
    for (int round = 0; round < 5; ++round) {
      ranks.all_reduce(values, Reduction::kMax, stream);
      kernels::add(values, values, values, stream);
      kernels::add(mine, mine, mine, stream);
      ranks.all_gather(all, mine, stream);
      ranks.all_reduce(all, Reduction::kSum, stream);
    }
    const std::vector<float> got = floats_of(values, stream);
    for (std::size_t i = 0; i < got.size(); ++i)
      ASSERT_EQ(got[i], 32 * static_cast<float>(i + 1)) << i;
    for (const float sum : floats_of(all, stream)) EXPECT_EQ(sum, 32 * size);
  });
}

TEST_P(CommunicatorContract, CallsThatDifferAreNamedOnEachRank) {
  if (!GetParam().blocks_host) GTEST_SKIP() << "the streams wait, and RankWatch ends the job";
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
    const Tensor values = counted(last ? 6 : 5, 0, stream);
    const std::string counts =
        message_of([&] { ranks.all_reduce(values, Reduction::kSum, stream); });
    EXPECT_NE(counts.find("rank 0 called all_reduce of 5 f32 (sum), its call "), counts.npos)
        << counts;
    EXPECT_NE(counts.find(concat("rank ", ranks.size() - 1, " called all_reduce of 6 f32")),
              counts.npos)
        << counts;
    if (ranks.size() <= 4) {  // as many elements in all, cut in another way
      Counts parts(static_cast<std::size_t>(ranks.size()), 1);
      parts[last ? 0 : 1] = 2;
      EXPECT_NE(message_of([&] {
                  ranks.gather_parts(values.rows(0, 5), parts, stream);
                }).find("gather_parts"),
                std::string::npos);
    }
    const std::string operations =
        message_of([&] { last ? ranks.barrier() : ranks.broadcast(values, 0, stream); });
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
