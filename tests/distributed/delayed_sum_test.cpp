#include "src/distributed/delayed_sum.h"

#include <gtest/gtest.h>

#include "src/distributed/decorated_communicator.h"
#include "src/distributed/host_ranks.h"

namespace hybrid_trainer {
namespace {

Tensor mine_of(int rank, std::int64_t elements, const Stream& stream) {
  const Tensor mine = Tensor::empty({elements}, DType::kF32, MemoryKind::kGradients, stream);
  for (std::int64_t i = 0; i < elements; ++i)
    mine.data<float>()[i] = static_cast<float>(rank + 1) / static_cast<float>(i + 3);
  return mine;
}

/// Two pieces. The second has shards of different sizes, one of them empty.
TEST(DelayedSum, KeptShardsMatchFullSum) {
  const std::vector<SharedElements> shared{{{0, 60}, {{0, 20}, {20, 40}, {40, 60}}},
                                           {{60, 100}, {{0, 35}, {35, 35}, {35, 40}}}};
  run_thread_ranks(3, [&](Communicator& others) {
    BackgroundCommunicator ranks(others, true);
    const Stream stream{MemoryPool::create("device")};
    const std::vector<double> words{1.0 + ranks.rank(), 0.5};
    DelayedSum everywhere(mine_of(ranks.rank(), 100, stream), words, ranks, stream);
    DelayedSum kept(mine_of(ranks.rank(), 100, stream), shared, words, ranks, stream);
    const Tensor wanted = everywhere.wait(), got = kept.wait();
    double squares = 0;
    for (std::int64_t i = 0; i < 100; ++i) {
      const auto value = static_cast<double>(wanted.data<float>()[i]);
      squares += value * value;
    }
    for (const auto& [elements, shards] : shared) {
      const Shard& own = shards[static_cast<std::size_t>(ranks.rank())];
      for (std::int64_t i = elements.first + own.first; i < elements.first + own.last; ++i)
        EXPECT_EQ(got.data<float>()[i], wanted.data<float>()[i]) << i;
    }
    for (const DelayedSum* sum : {&everywhere, &kept}) {
      EXPECT_EQ(sum->sum_of(0), 6);
      EXPECT_EQ(sum->sum_of(1), 1.5);
    }
    EXPECT_NEAR(kept.sum_of_squares(), squares, 1e-12 * squares);
  });
}

}  // namespace
}  // namespace hybrid_trainer
