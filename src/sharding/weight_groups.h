#pragma once

#include <cstdint>
#include <vector>

#include "hybrid_trainer/distributed/distributed_config.h"
#include "hybrid_trainer/nn/parameter.h"

namespace hybrid_trainer {

/// Where a rank's part of weights begins: at an element of one of them.
struct WeightCut {
  std::size_t weight = 0;
  std::int64_t element = 0;
  bool operator==(const WeightCut&) const = default;
};

/// Consecutive weights [first, last) whose gradients or values ranks send each other together, and
/// where they are cut into a part for each rank: ranks + 1 cuts, of which the first is the beginning
/// and the last the end. Not cut, where each rank has all of them.
struct WeightGroup {
  std::size_t first = 0, last = 0;
  std::vector<WeightCut> cuts{};
};

/// Groups with f32 values of at least `bytes`, but for the last one; the last weights come first, as
/// backward comes to them.
std::vector<WeightGroup> group_weights(const std::vector<Parameter*>& weights, std::int64_t bytes);

/// distributed.bucket_bytes, or what it is where it is left to the weights.
std::int64_t bucket_bytes_for(const std::vector<Parameter*>& weights,
                              const DistributedConfig& config);

/// The same groups, each cut where what updates a weight allows (`units` of elements, see cut_units),
/// so that the parts of the groups so far are as equal as they can be: what a group leaves one rank
/// short of, the next ones give it. Where a group's own parts are not about equal, since weights stay
/// whole, it is made one with the next, so that no rank's link has to take it all.
std::vector<WeightGroup> cut_groups(const std::vector<WeightGroup>& groups,
                                    const std::vector<Parameter*>& weights,
                                    const std::vector<std::int64_t>& units, int ranks);

}  // namespace hybrid_trainer
