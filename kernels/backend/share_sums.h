#pragma once

#include <vector>

#include "kernels/backend/backend.h"
#include "kernels/backend/parallel.h"

namespace hybrid_trainer::kernels::cpu {

/// Returns the sum of body(begin, end) -> double over the shares of [0, n), added in order.
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

/// Column sums that threads accumulate over their own rows, in one line of `columns` per share.
class ColumnSums {
 public:
  ColumnSums(std::int64_t shares, std::int64_t columns, const Stream& stream)
      : shares_(shares),
        columns_(columns),
        lines_(empty_workspace(shares * columns, DType::kF32, stream)) {
    fill_zero(lines_, stream);
  }
  float* line(std::int64_t share) const { return lines_.data<float>() + share * columns_; }

  /// target[i] = or += the sum of line[begin + i] over the shares, for all elements of `target`.
  void add_to(const Tensor& target, std::int64_t begin, bool accumulate) const {
    float* const out = target.data<float>();
    for (std::int64_t i = 0; i < target.elements(); ++i) {
      float sum = accumulate ? out[i] : 0.0f;
      for (std::int64_t share = 0; share < shares_; ++share) sum += line(share)[begin + i];
      out[i] = sum;
    }
  }

 private:
  std::int64_t shares_;
  std::int64_t columns_;
  Tensor lines_;
};

/// Adds term(x[row, column]) to line[column] for rows [begin, end), and calls finish(row, its sum).
template <class Term, class Finish>
void add_rows(float* line, const float* x, std::int64_t columns, std::int64_t begin,
              std::int64_t end, const Term& term, const Finish& finish) {
  for (std::int64_t row = begin; row < end; ++row) {
    const float* const from = x + row * columns;
    float sum = 0;
#pragma omp simd reduction(+ : sum)
    for (std::int64_t i = 0; i < columns; ++i) {
      const float one = term(from[i]);
      sum += one;
      line[i] += one;
    }
    finish(row, sum);
  }
}

}  // namespace hybrid_trainer::kernels::cpu
