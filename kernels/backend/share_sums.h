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
  /// Allocates the sums for `rows` rows of `row_elements` elements.
  ColumnSums(std::int64_t rows, std::int64_t row_elements, std::int64_t columns,
             const Stream& stream)
      : rows_(rows),
        least_(min_rows_per_thread(row_elements)),
        shares_(share_count(rows, least_)),
        columns_(columns),
        lines_(empty_workspace(shares_ * columns, DType::kF32, stream)) {
    fill_zero(lines_, stream);
  }
  /// Calls body(line, row) for each row and its share's line.
  template <class Body>
  void for_rows(const Body& body) const {
    parallel_shares(rows_, least_,
                    [this, body](std::int64_t share, std::int64_t begin, std::int64_t end) {
                      float* const line = lines_.data<float>() + share * columns_;
                      for (std::int64_t row = begin; row < end; ++row) body(line, row);
                    });
  }

  /// target[i] = or += the sum of line[begin + i] over the shares, for all elements of `target`.
  void add_to(const Tensor& target, std::int64_t begin, bool accumulate) const {
    float* const out = target.data<float>();
    const float* const lines = lines_.data<float>();
    for (std::int64_t i = 0; i < target.elements(); ++i) {
      float sum = accumulate ? out[i] : 0.0f;
      for (std::int64_t share = 0; share < shares_; ++share)
        sum += lines[share * columns_ + begin + i];
      out[i] = sum;
    }
  }

 private:
  std::int64_t rows_, least_, shares_, columns_;
  Tensor lines_;
};

/// Adds term(x[column]) to line[column] for a row x. Returns the sum over the row.
template <class Term>
float add_row(float* line, const float* x, std::int64_t columns, const Term& term) {
  float sum = 0;
#pragma omp simd reduction(+ : sum)
  for (std::int64_t i = 0; i < columns; ++i) {
    const float one = term(x[i]);
    sum += one;
    line[i] += one;
  }
  return sum;
}

}  // namespace hybrid_trainer::kernels::cpu
