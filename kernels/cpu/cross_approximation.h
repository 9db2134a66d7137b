#pragma once

#include <cmath>
#include <vector>

#include "hybrid_trainer/core/error.h"
#include "hybrid_trainer/core/random.h"
#include "kernels/cpu/hodlr_blocks.h"

namespace hybrid_trainer::kernels {

/// A block of a matrix as a growing sum of crosses: rows and columns of what the sum leaves out.
class CrossApproximation {
 public:
  CrossApproximation(const LowRankBlock& place, const MatrixEntry& entry)
      : place_(place), entry_(entry), used_(static_cast<std::size_t>(place.rows)) {}

  void run(double tolerance) {
    const std::int64_t most = std::min(place_.rows, place_.columns);
    std::int64_t row = 0;
    while (rank() < most && row >= 0) row = add_cross(row, tolerance);
  }
  HodlrMatrix u() const { return joined(us_, place_.rows); }
  HodlrMatrix v() const { return joined(vs_, place_.columns); }

 private:
  std::int64_t rank() const { return static_cast<std::int64_t>(us_.size()); }

  static HodlrMatrix joined(const std::vector<HodlrVector>& columns, std::int64_t rows) {
    HodlrMatrix matrix(rows, static_cast<std::int64_t>(columns.size()));
    for (std::size_t k = 0; k < columns.size(); ++k)
      matrix.col(static_cast<std::int64_t>(k)) = columns[k];
    return matrix;
  }
  HodlrVector row_left(std::int64_t row) const {
    HodlrVector left(place_.columns);
    for (std::int64_t j = 0; j < place_.columns; ++j)
      left[j] = entry_(place_.first_row + row, place_.first_column + j);
    if (!left.allFinite())
      throw Error(ExitCode::kInternal, concat("Hodlr: row ", place_.first_row + row,
                                              " has an entry that is not finite"));
    for (std::size_t k = 0; k < us_.size(); ++k) left -= us_[k][row] * vs_[k];
    return left;
  }
  HodlrVector column_left(std::int64_t column) const {
    HodlrVector left(place_.rows);
    for (std::int64_t i = 0; i < place_.rows; ++i)
      left[i] = entry_(place_.first_row + i, place_.first_column + column);
    for (std::size_t k = 0; k < us_.size(); ++k) left -= vs_[k][column] * us_[k];
    return left;
  }

  /// Adds the cross through a row. Returns the next row, or -1 where the sum is near enough.
  std::int64_t add_cross(std::int64_t row, double tolerance) {
    HodlrVector v = row_left(row);
    used_[static_cast<std::size_t>(row)] = true;
    std::int64_t column = 0;
    const double pivot = v.cwiseAbs().maxCoeff(&column);
    if (!(pivot > tolerance * std::sqrt(norm_squared_) / static_cast<double>(place_.rows)))
      return row_that_differs(tolerance);
    v /= v[column];
    HodlrVector u = column_left(column);
    const double size = u.norm() * v.norm();
    for (std::size_t k = 0; k < us_.size(); ++k) norm_squared_ += 2 * us_[k].dot(u) * vs_[k].dot(v);
    norm_squared_ += size * size;
    std::int64_t next = -1;
    for (std::int64_t i = 0; i < place_.rows; ++i) {
      const bool free = !used_[static_cast<std::size_t>(i)];
      if (free && (next < 0 || std::fabs(u[i]) > std::fabs(u[next]))) next = i;
    }
    us_.push_back(std::move(u));
    vs_.push_back(std::move(v));
    return size > tolerance * std::sqrt(norm_squared_) ? next : row_that_differs(tolerance);
  }
  /// A row that the sum does not yet give, from a few rows and columns drawn at random; -1 where it
  /// gives all of them.
  std::int64_t row_that_differs(double tolerance) {
    constexpr std::uint64_t kDrawn = 4;
    const double most = tolerance * std::sqrt(norm_squared_);
    const RandomKey key{static_cast<std::uint64_t>(place_.first_row), us_.size(),
                        static_cast<std::uint64_t>(place_.first_column)};
    const auto drawn = [&](std::uint64_t i, std::int64_t count) {
      return static_cast<std::int64_t>(random_below(key, i, static_cast<std::uint64_t>(count)));
    };
    for (std::uint64_t i = 0; i < kDrawn; ++i) {
      const std::int64_t row = drawn(2 * i, place_.rows);
      if (!used_[static_cast<std::size_t>(row)] &&
          row_left(row).norm() * std::sqrt(static_cast<double>(place_.rows)) > most)
        return row;
      const HodlrVector column = column_left(drawn(2 * i + 1, place_.columns));
      std::int64_t largest = 0;
      column.cwiseAbs().maxCoeff(&largest);
      if (!used_[static_cast<std::size_t>(largest)] &&
          column.norm() * std::sqrt(static_cast<double>(place_.columns)) > most)
        return largest;
    }
    return -1;
  }

  const LowRankBlock& place_;
  const MatrixEntry& entry_;
  std::vector<bool> used_;
  std::vector<HodlrVector> us_, vs_;
  double norm_squared_ = 0;
};

}  // namespace hybrid_trainer::kernels
