#pragma once

#include <vector>

#include "kernels/cpu/parallel.h"

namespace hybrid_trainer::kernels::cpu {

/// Sum over [0, n) of body(begin, end) -> double by shares, added in their order.
template <class Body>
double sum_over_shares(std::int64_t n, const Body& body) {
  std::vector<double> sums(static_cast<std::size_t>(share_count(n, kMinElementsPerThread)));
  double* const sum = sums.data();
  parallel_shares(n, kMinElementsPerThread,
                  [sum, body](std::int64_t share, std::int64_t begin, std::int64_t end) {
                    sum[share] = body(begin, end);
                  });
  double total = 0;
  for (const double one : sums) total += one;
  return total;
}

}  // namespace hybrid_trainer::kernels::cpu
