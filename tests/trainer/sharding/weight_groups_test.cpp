#include "src/trainer/sharding/weight_parts.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <tuple>

#include "hybrid_trainer/kernels/reductions.h"
#include "src/optim/make_optimizer.h"
#include "tests/trainer/sharding/some_weights.h"

namespace hybrid_trainer {
namespace {

class WeightGroupsTest : public ::testing::Test {
 protected:
  std::vector<WeightGroup> cut(const char* optimizer, std::int64_t bytes, int ranks) const {
    return cut_groups(group_weights(weights_, bytes), weights_,
                      cut_units(optimizer_named(optimizer), weights_), ranks);
  }
  std::int64_t first_element_of(std::size_t weight) const {
    std::int64_t sum = 0;
    for (std::size_t i = 0; i < weight; ++i) sum += weights_[i]->elements();
    return sum;
  }
  /// Number of elements of each rank over all groups.
  std::vector<std::int64_t> elements_by_rank(const std::vector<WeightGroup>& groups) const {
    std::vector<std::int64_t> sums(groups.front().cuts.size() - 1);
    const auto at = [&](const WeightCut& cut) {
      return first_element_of(cut.weight) + cut.element;
    };
    for (const WeightGroup& group : groups) {
      for (std::size_t rank = 0; rank < sums.size(); ++rank)
        sums[rank] += at(group.cuts[rank + 1]) - at(group.cuts[rank]);
    }
    return sums;
  }

  SomeWeights some_;
  const std::vector<Parameter*>& weights_ = some_.weights;
};

TEST_F(WeightGroupsTest, GroupsFromLastWeightBySize) {
  const auto ranges = [&](std::int64_t bytes) {
    std::vector<std::pair<std::size_t, std::size_t>> all;
    for (const WeightGroup& group : group_weights(weights_, bytes))
      all.emplace_back(group.first, group.last);
    return all;
  };
  using Ranges = std::vector<std::pair<std::size_t, std::size_t>>;
  EXPECT_EQ(ranges(1 << 30), (Ranges{{0, 4}}));
  EXPECT_EQ(ranges(4 * 64 * 192), (Ranges{{3, 4}, {1, 3}, {0, 1}}));
  EXPECT_EQ(ranges(4 * 64 * 192 + 4), (Ranges{{2, 4}, {1, 2}, {0, 1}}));
}

TEST_F(WeightGroupsTest, DefaultBucketIsFractionOfWeights) {
  DistributedConfig config;
  EXPECT_EQ(config.bucket_bytes_for(64 << 20), 2 << 20);
  config.bucket_bytes = 4097;
  EXPECT_EQ(bucket_bytes_for(weights_, config), 4097);
  config.bucket_bytes = 0;
  EXPECT_EQ(config.bucket_bytes_for(std::int64_t{1} << 40), 4 << 20);
  EXPECT_EQ(bucket_bytes_for(weights_, config), 1 << 20);
}

TEST_F(WeightGroupsTest, CutsAtOptimizerUnitsAndCoversAll) {
  for (const char* const name : {"adamw", "muon", "adam_mini", "adafactor", "lion", "sgd"}) {
    const std::vector<std::int64_t> units = cut_units(optimizer_named(name), weights_);
    for (const std::int64_t bytes : {4096, 1 << 16, 1 << 30}) {
      for (const int ranks : {1, 2, 3, 4, 7, 50}) {
        for (const WeightGroup& group : cut(name, bytes, ranks)) {
          const std::vector<WeightCut>& cuts = group.cuts;
          ASSERT_EQ(cuts.size(), static_cast<std::size_t>(ranks) + 1);
          EXPECT_EQ(cuts.front(), (WeightCut{group.first, 0}));
          EXPECT_EQ(cuts.back(), (WeightCut{group.last, 0}));
          for (std::size_t i = 0; i + 1 < cuts.size(); ++i) {
            EXPECT_LE(std::tie(cuts[i].weight, cuts[i].element),
                      std::tie(cuts[i + 1].weight, cuts[i + 1].element));
            if (cuts[i].weight == group.last) continue;
            EXPECT_EQ(cuts[i].element % units[cuts[i].weight], 0) << name << ", " << ranks;
          }
        }
      }
    }
  }
}

/// Balanced in each group, so that no single link carries all of it.
TEST_F(WeightGroupsTest, ElementwiseUpdatesSplitNearlyEvenly) {
  for (const std::int64_t bytes : {4096, 1 << 16, 1 << 30}) {
    const std::vector<WeightGroup> groups = cut("adamw", bytes, 3);
    for (const std::int64_t elements : elements_by_rank(groups)) {
      EXPECT_NEAR(static_cast<double>(elements),
                  static_cast<double>(first_element_of(weights_.size())) / 3,
                  2 * kernels::kDotChunk)
          << bytes;
    }
    for (const WeightGroup& group : groups) {
      if (group.last - group.first > 1 || weights_[group.first]->elements() < 12000) continue;
      for (const std::int64_t elements : elements_by_rank({group})) EXPECT_GT(elements, 0);
    }
  }
}

/// If matrices must not be split, each group has one matrix per rank.
TEST_F(WeightGroupsTest, WholeMatricesAreBalancedPerGroup) {
  SomeWeights many;
  for (int i = 0; i < 12; ++i) many.add("m", {300, 300}, Role::kMatrix);
  const std::vector<Parameter*> matrices(many.weights.begin() + 4, many.weights.end());
  const std::vector<WeightGroup> given = group_weights(matrices, 4096);
  ASSERT_EQ(given.size(), 12u);
  const std::vector<WeightGroup> groups =
      cut_groups(given, matrices, cut_units(optimizer_named("muon"), matrices), 4);
  EXPECT_EQ(groups.size(), 3u);
  for (const WeightGroup& group : groups) {
    for (std::size_t rank = 0; rank < 4; ++rank)
      EXPECT_EQ(group.cuts[rank + 1].weight - group.cuts[rank].weight, 1u) << group.first;
  }
}

}  // namespace
}  // namespace hybrid_trainer
