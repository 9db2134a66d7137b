#pragma once

#include <cstddef>

namespace hybrid_trainer {

/// Bytes that operator new was asked for at once, at most, since the last call of forget_allocations.
std::size_t largest_allocation();
void forget_allocations();

}  // namespace hybrid_trainer
