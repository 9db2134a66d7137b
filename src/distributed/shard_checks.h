#pragma once

#include "hybrid_trainer/distributed/communicator.h"

namespace hybrid_trainer {

/// Throws ShapeMismatch unless `shard` has the dtype of `values` and the count of the rank's shard.
void check_shard(const Tensor& shard, const Tensor& values, int rank, int ranks);

/// Throws ShapeMismatch unless there is a count for each rank, none negative, and the tensor has as
/// many elements as they say.
void check_counts(const Tensor& tensor, const std::vector<std::int64_t>& counts, int ranks);

}  // namespace hybrid_trainer
