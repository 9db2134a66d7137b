#pragma once

#include <cstdint>
#include <memory>
#include <string>
#include <vector>

#include "hybrid_trainer/core/batch.h"
#include "hybrid_trainer/tasks/network_data.h"

namespace hybrid_trainer {

/// Between which numbers those of a tensor must lie, both included.
struct WholeRange {
  std::string name;  // of the tensor
  std::int64_t low = 0, high = 0;
};

/// Examples in the folder source.data of .npy arrays: NAME.npy, (examples, …), for each tensor of `form`, a batch of one
/// example. Targets that are whole numbers may be of any dtype. All is read into memory. Throws
/// MissingInput, DataError where an array has another shape or number of examples than it should, or
/// numbers that are not finite, or not whole or out of `ranges` where they must be.
std::unique_ptr<NetworkData> array_data(const NetworkDataSource& source, const Batch& form,
                                        const std::vector<WholeRange>& ranges = {});

}  // namespace hybrid_trainer
