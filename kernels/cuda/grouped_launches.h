#pragma once

// How calls with a matrix for each group are cut into launches.

#include <algorithm>

#include "hybrid_trainer/kernels/grouped_product.h"

namespace hybrid_trainer::kernels::cuda {

/// Of a launch: their addresses are among its parameters, which may have 4 KiB.
constexpr int kMostMatrices = 128;

/// Calls start(first matrix, count, offsets of the first one) for each launch.
template <class Start>
void for_launches(std::size_t matrices, const GroupedRows& rows, const Start& start) {
  const std::int32_t* const offsets = rows.offsets.data<std::int32_t>() + rows.first;
  for (std::size_t first = 0; first < matrices; first += kMostMatrices)
    start(first, std::min(matrices - first, std::size_t{kMostMatrices}), offsets + first);
}

}  // namespace hybrid_trainer::kernels::cuda
