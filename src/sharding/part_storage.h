#pragma once

#include <memory>
#include <vector>

#include "hybrid_trainer/distributed/communicator.h"
#include "hybrid_trainer/nn/parameter.h"
#include "src/sharding/weight_arrivals.h"
#include "src/sharding/weight_gathers.h"

namespace hybrid_trainer {

/// Elements `part` of whole weight number `weight`, which lies on this rank, as a weight of `shape`.
/// The whole one owns the memory, and changes of others' parts arrive in it; both must outlive it.
std::unique_ptr<WeightStorage> part_in_place(WeightArrivals& arrivals, std::size_t weight,
                                             const Shard& part, const Shape& shape);

/// The same in memory of its own, masters and compute copy, with the whole one's values so far.
std::unique_ptr<WeightStorage> part_of_its_own(Parameter& whole, const Shard& part,
                                               const Shape& shape, const Stream& stream);

/// A weight of which each rank has its own of `parts`, by rank, in `mine`. To acquire it is a
/// collective, which brings all parts to this rank until it is released; what changes it then is
/// lost. It has no masters of its own (home_master). `mine` and `gathers` must outlive it.
std::unique_ptr<WeightStorage> gathered_weight(const Shape& shape, Parameter& mine,
                                               std::vector<Shard> parts, WeightGathers& gathers);

}  // namespace hybrid_trainer
