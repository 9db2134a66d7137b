#pragma once

#include <cstdint>
#include <functional>
#include <memory>
#include <span>
#include <vector>

#include "hybrid_trainer/kernels/matmul.h"

namespace hybrid_trainer::kernels {

/// Returns entry (row, column) of a matrix. Must be thread-safe.
using MatrixEntry = std::function<double(std::int64_t row, std::int64_t column)>;

struct HodlrSpec {
  double tolerance = 1e-6;  // relative truncation error of a block, in the Frobenius norm
  std::int64_t leaf = 64;   // maximum rows of a dense diagonal block
};

/// Block u·vᵀ of the given rows and columns; u and v are column-major.
struct LowRankBlock {
  std::int64_t first_row = 0, rows = 0, first_column = 0, columns = 0, rank = 0;
  std::vector<double> u, v;
};
/// Diagonal block of rows and columns [first, first + size), column-major.
struct DiagonalBlock {
  std::int64_t first = 0, size = 0;
  std::vector<double> values;
};

/// Hierarchically off-diagonal low-rank (N, N) matrix: off-diagonal blocks have low rank at each
/// level of a recursive bisection. Stores O(N·log N) f64 numbers. Runs on the host with all
/// threads. Results do not depend on the number of threads. Source: Ambikasaran and Darve 2013.
class Hodlr {
 public:
  /// Compresses a matrix by adaptive cross approximation, reading O(N·r·log N) entries. Truncates
  /// blocks by their singular values. May miss isolated nonzero entries. Throws Error for a size,
  /// leaf or tolerance that is not positive, or entries that are not finite.
  Hodlr(std::int64_t size, const MatrixEntry& entry, const HodlrSpec& spec = {});

  std::int64_t size() const { return size_; }
  std::int64_t largest_rank() const;
  std::size_t bytes() const;        // bytes of all stored numbers
  std::size_t dense_bytes() const;  // bytes of a dense (N, N) f64 matrix

  /// Writes A·x or Aᵀ·x to y, one or more vectors of N elements. Throws ShapeMismatch.
  void multiply(std::span<double> y, std::span<const double> x, Transpose transpose) const;
  /// Returns the gradients of all numbers stored in A, in its layout, given dy of y = A·x.
  Hodlr gradients(std::span<const double> dy, std::span<const double> x) const;

  const std::vector<DiagonalBlock>& leaves() const { return leaves_; }
  /// Returns the off-diagonal blocks of each level: a pair, upper first, for each node.
  const std::vector<std::vector<LowRankBlock>>& levels() const { return levels_; }
  std::vector<DiagonalBlock>& leaves() { return leaves_; }
  std::vector<std::vector<LowRankBlock>>& levels() { return levels_; }

 private:
  std::int64_t vectors_of(const char* what, std::size_t numbers) const;
  std::int64_t size_ = 0;
  std::vector<DiagonalBlock> leaves_;
  std::vector<std::vector<LowRankBlock>> levels_;
};

/// Solver for a Hodlr, in O(N·r²·log² N) and as much memory as the matrix.
class HodlrSolver {
 public:
  explicit HodlrSolver(const Hodlr& matrix);
  ~HodlrSolver();
  /// Replaces each x by A⁻¹·x. The result is not finite if A is singular. Throws ShapeMismatch.
  void solve(std::span<double> x) const;

 private:
  struct Factors;
  std::unique_ptr<Factors> factors_;
};

}  // namespace hybrid_trainer::kernels
