#pragma once

#include <cstddef>

namespace hybrid_trainer {

/// Largest size requested from operator new in one call since the last forget_allocations().
std::size_t largest_allocation();
void forget_allocations();

}  // namespace hybrid_trainer
