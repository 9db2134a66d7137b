#include "src/trainer/weight_parts.h"

#include <gtest/gtest.h>

#include <numeric>
#include <tuple>

#include "hybrid_trainer/distributed/thread_communicator.h"
#include "hybrid_trainer/kernels/reductions.h"
#include "hybrid_trainer/optim/make_optimizer.h"

namespace hybrid_trainer {
namespace {

/// A table, two matrices and a vector.
struct SomeWeights {
  SomeWeights() {
    add("table", {301, 50}, Role::kEmbedding);
    add("first", {128, 100}, Role::kMatrix);
    add("gain", {77}, Role::kVector);
    add("second", {64, 192}, Role::kMatrix);
  }
  void add(const char* name, const Shape& shape, Role role) {
    own.push_back(std::make_unique<Parameter>(name, shape, role, stream));
    weights.push_back(own.back().get());
    float* const values = weights.back()->home_master().data<float>();
    for (std::int64_t i = 0; i < shape.elements(); ++i)
      values[i] = static_cast<float>(own.size() * 100000) + static_cast<float>(i);
  }

  Stream stream{MemoryPool::create("device")};
  std::vector<std::unique_ptr<Parameter>> own;
  std::vector<Parameter*> weights;
};

OptimizerConfig optimizer_named(const char* name) {
  OptimizerConfig config;
  config.name = name;
  return config;
}

class WeightPartsTest : public ::testing::Test {
 protected:
  SomeWeights some_;
  const std::vector<Parameter*>& weights_ = some_.weights;
};

TEST_F(WeightPartsTest, AreCutWhereTheirOptimizerAllowsAndCoverAll) {
  for (const char* const name : {"adamw", "muon", "adam_mini", "adafactor", "lion", "sgd"}) {
    const std::vector<std::int64_t> units = cut_units(optimizer_named(name), weights_);
    for (const int ranks : {1, 2, 3, 4, 7, 50}) {
      const std::vector<WeightCut> cuts = cut_weights(weights_, units, ranks);
      ASSERT_EQ(cuts.size(), static_cast<std::size_t>(ranks) + 1);
      EXPECT_EQ(cuts.front(), (WeightCut{0, 0}));
      EXPECT_EQ(cuts.back(), (WeightCut{weights_.size(), 0}));
      for (std::size_t i = 0; i + 1 < cuts.size(); ++i) {
        EXPECT_LE(std::tie(cuts[i].weight, cuts[i].element),
                  std::tie(cuts[i + 1].weight, cuts[i + 1].element));
        if (cuts[i].weight == weights_.size()) continue;
        EXPECT_EQ(cuts[i].element % units[cuts[i].weight], 0) << name << ", " << ranks;
      }
    }
  }
}

TEST_F(WeightPartsTest, OfElementwiseUpdatesAreNearlyEqual) {
  const auto cuts = cut_weights(weights_, cut_units(optimizer_named("adamw"), weights_), 3);
  std::vector<std::int64_t> first;
  std::int64_t all = 0;
  for (const Parameter* weight : weights_) {
    first.push_back(all);
    all += weight->elements();
  }
  first.push_back(all);
  for (int rank = 0; rank < 3; ++rank) {
    const auto at = [&](int i) { return first[cuts[i].weight] + cuts[i].element; };
    EXPECT_NEAR(static_cast<double>(at(rank + 1) - at(rank)), static_cast<double>(all) / 3,
                kernels::kDotChunk);
  }
}

TEST_F(WeightPartsTest, MatricesOfMuonStayWhole) {
  const auto units = cut_units(optimizer_named("muon"), weights_);
  EXPECT_EQ(units[1], weights_[1]->elements());
  EXPECT_EQ(units[3], weights_[3]->elements());
  EXPECT_EQ(units[0], kernels::kDotChunk);  // AdamW's
}

TEST_F(WeightPartsTest, ChangesOfOnesOwnReachAllRanks) {
  for (const bool apart : {false, true}) {
    run_thread_ranks(3, [&](Communicator& ranks) {
      SomeWeights here;
      WeightParts parts(here.weights, optimizer_named("adamw"), ranks, apart, 1 << 20, here.stream);
      for (const Parameter* part : parts.parameters()) {
        const Tensor master = part->home_master();
        for (std::int64_t i = 0; i < master.elements(); ++i)
          master.data<float>()[i] = -master.data<float>()[i] - static_cast<float>(ranks.rank());
      }
      parts.gather_masters(4096 * 3, here.stream);  // several buckets, the last one smaller
      for (std::size_t i = 0; i < here.weights.size(); ++i) {
        const Weight master = here.weights[i]->acquire_master(here.stream);
        for (int rank = 0; rank < 3; ++rank) {
          const Shard part = parts.of(i, rank);
          for (std::int64_t k = part.first; k < part.last; ++k) {
            ASSERT_EQ(master.tensor().data<float>()[k],
                      -weights_[i]->home_master().data<float>()[k] - static_cast<float>(rank))
                << weights_[i]->name() << ' ' << k;
          }
        }
      }
    });
  }
}

TEST_F(WeightPartsTest, SumsOverRanksAreThoseOfOne) {
  std::vector<double> wanted;
  for (const Parameter* weight : weights_)
    wanted.push_back(
        kernels::wait_for_dot(weight->home_master(), weight->home_master(), some_.stream));
  run_thread_ranks(4, [&](Communicator& ranks) {
    SomeWeights here;
    const WeightParts parts(here.weights, optimizer_named("lion"), ranks, false, 0, here.stream);
    std::vector<Tensor> own;
    for (const Parameter* part : parts.parameters()) own.push_back(part->home_master());
    const auto chunks = parts.wait_for_chunk_dots(own, own, here.stream);
    for (std::size_t i = 0; i < own.size(); ++i) {
      EXPECT_EQ(std::accumulate(chunks[i].begin(), chunks[i].end(), 0.0), wanted[i]);
      EXPECT_EQ(parts.wait_for_dot(own[i], own[i], here.stream), wanted[i]);
    }
  });
}

}  // namespace
}  // namespace hybrid_trainer
