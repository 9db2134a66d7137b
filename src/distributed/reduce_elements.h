#pragma once

#include <cstdint>

#include "hybrid_trainer/distributed/communicator.h"

namespace hybrid_trainer {

/// Throws Error where elements of that dtype cannot be reduced.
void check_reducible(DType dtype);

/// into[i] = the reduction of into[i] and of from[i].
void reduce_elements(void* into, const void* from, std::int64_t elements, DType dtype,
                     Reduction reduction);

}  // namespace hybrid_trainer
