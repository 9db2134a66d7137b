#pragma once

#include "src/sharding/ordered_gradients.h"
#include "src/step/accumulated_gradients.h"

namespace hybrid_trainer {

/// The gradient of a step whose micro-batches are summed as a tree, on any number of ranks in one
/// order. `single`, if not null, computes steps of one micro-batch, and has what the others come to.
std::unique_ptr<GradientPath> make_tree_gradients(const GradientParts& parts,
                                                  std::int64_t bucket_bytes,
                                                  std::unique_ptr<AccumulatedGradients> single);
/// Such a tree of which each rank has its parts of the weights alone (DistributedConfig::zero above
/// 0).
std::unique_ptr<GradientPath> make_sharded_gradients(const GradientParts& parts, std::int64_t zero,
                                                     std::int64_t bucket_bytes);

}  // namespace hybrid_trainer
