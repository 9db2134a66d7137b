#include <gtest/gtest.h>

#include "src/distributed/communicator.h"

namespace hybrid_trainer {
namespace {

TEST(ShardOf, CoversAllElementsOnce) {
  for (const std::int64_t n : {0, 1, 2, 3, 7, 64, 1001}) {
    for (const int ranks : {1, 2, 3, 4, 5, 8}) {
      std::int64_t next = 0;
      for (int rank = 0; rank < ranks; ++rank) {
        const Shard shard = shard_of(n, rank, ranks);
        EXPECT_EQ(shard.first, next);
        next = shard.last;
      }
      EXPECT_EQ(next, n);
    }
  }
  EXPECT_THROW(shard_of(4, 2, 2), Error);
}

}  // namespace
}  // namespace hybrid_trainer
