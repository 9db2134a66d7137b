#include "src/trainer/sharding/weight_parts.h"

#include <gtest/gtest.h>

#include <numeric>

#include "hybrid_trainer/kernels/reductions.h"
#include "src/distributed/host_ranks.h"
#include "src/optim/make_optimizer.h"
#include "tests/trainer/sharding/some_weights.h"

namespace hybrid_trainer {
namespace {

class WeightPartsTest : public ::testing::Test {
 protected:
  SomeWeights some_;
  const std::vector<Parameter*>& weights_ = some_.weights;
};

TEST_F(WeightPartsTest, MuonMatricesStayWhole) {
  const auto units = cut_units(optimizer_named("muon"), weights_);
  EXPECT_EQ(units[1], weights_[1]->elements());
  EXPECT_EQ(units[3], weights_[3]->elements());
  EXPECT_EQ(units[0], kernels::kDotChunk);  // AdamW's
}

TEST_F(WeightPartsTest, GathersShardedWeights) {
  run_thread_ranks(3, [&](Communicator& ranks) {
    SomeWeights here;
    const WeightSharing sharded{.shards = true, .bucket_bytes = 1 << 16, .bytes_ahead = 1 << 20};
    WeightParts parts(here.weights, optimizer_named("adamw"), ranks, sharded, here.stream);
    for (const Parameter* part : parts.parameters()) {
      const Tensor master = part->master_in_place();
      for (std::int64_t i = 0; i < master.elements(); ++i)
        master.data<float>()[i] = -master.data<float>()[i] - static_cast<float>(ranks.rank());
    }
    parts.masters_changed(here.stream);
    for (std::size_t i = 0; i < here.weights.size(); ++i) {
      const Weight master = here.weights[i]->acquire_master(here.stream);
      for (int rank = 0; rank < 3; ++rank) {
        const Shard part = parts.of(i, rank);
        for (std::int64_t k = part.first; k < part.last; ++k) {
          ASSERT_EQ(master.tensor().data<float>()[k],
                    -weights_[i]->master_in_place().data<float>()[k] - static_cast<float>(rank))
              << weights_[i]->name() << ' ' << k;
        }
      }
    }
  });
}

TEST_F(WeightPartsTest, DotProductsMatchSingleRank) {
  std::vector<double> wanted;
  for (const Parameter* weight : weights_)
    wanted.push_back(
        kernels::wait_for_dot(weight->master_in_place(), weight->master_in_place(), some_.stream));
  run_thread_ranks(4, [&](Communicator& ranks) {
    SomeWeights here;
    const WeightParts parts(here.weights, optimizer_named("lion"), ranks, {}, here.stream);
    std::vector<Tensor> own;
    for (const Parameter* part : parts.parameters()) own.push_back(part->master_in_place());
    const auto chunks = parts.wait_for_chunk_dots(own, own, here.stream);
    for (std::size_t i = 0; i < own.size(); ++i) {
      EXPECT_EQ(std::accumulate(chunks[i].begin(), chunks[i].end(), 0.0), wanted[i]);
      EXPECT_EQ(parts.wait_for_dot(own[i], own[i], here.stream), wanted[i]);
    }
  });
}

}  // namespace
}  // namespace hybrid_trainer
