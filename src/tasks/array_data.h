#pragma once

#include <memory>

#include "hybrid_trainer/core/batch.h"
#include "hybrid_trainer/tasks/network_data.h"

namespace hybrid_trainer {

/// Examples in the folder source.data of .npy arrays: NAME.npy, (examples, …), for each tensor of `form`, a batch of one
/// example. Targets that are whole numbers may be of any dtype. All is read into memory. Throws
/// MissingInput, DataError where an array has another shape or number of examples than it should, or
/// numbers that are not finite or not whole where they must be.
std::unique_ptr<NetworkData> array_data(const NetworkDataSource& source, const Batch& form);

}  // namespace hybrid_trainer
