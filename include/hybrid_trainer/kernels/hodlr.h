#pragma once

#include <cstdint>
#include <functional>
#include <memory>
#include <span>
#include <vector>

#include "hybrid_trainer/kernels/matmul.h"

namespace hybrid_trainer::kernels {

/// Entry (row, column) of a matrix. Several threads call it.
using MatrixEntry = std::function<double(std::int64_t row, std::int64_t column)>;

struct HodlrSpec {
  double tolerance = 1e-6;  // Frobenius norm of what a block leaves out, of that of the block
  std::int64_t leaf = 64;   // most rows of a diagonal block, which is dense
};

/// Rows [first_row, first_row + rows) and columns [first_column, …) of a matrix as u·vᵀ; u and v
/// column by column.
struct LowRankBlock {
  std::int64_t first_row = 0, rows = 0, first_column = 0, columns = 0, rank = 0;
  std::vector<double> u, v;
};
/// Rows and columns [first, first + size), column by column.
struct DiagonalBlock {
  std::int64_t first = 0, size = 0;
  std::vector<double> values;
};

/// A matrix (N, N) whose off-diagonal blocks are of low rank, at each level of a recursive halving
/// of [0, N) ("hierarchically off-diagonal low rank"): O(N·log N) numbers of f64 where the ranks stay
/// small, as for smooth kernels of points in order. On the host. Products of a level run on all
/// threads; results do not depend on their number. Source: Ambikasaran and Darve 2013.
class Hodlr {
 public:
  /// Reads O(N·r·log N) entries by adaptive cross approximation, verified on rows and columns drawn
  /// at random, and compresses each block by its singular values; single entries among zeros may be
  /// missed. Throws Error for a size, leaf or tolerance that is not positive and for an entry that is
  /// not finite.
  Hodlr(std::int64_t size, const MatrixEntry& entry, const HodlrSpec& spec = {});

  std::int64_t size() const { return size_; }
  std::int64_t largest_rank() const;
  std::size_t bytes() const;        // of all numbers
  std::size_t dense_bytes() const;  // of N² f64

  /// y = A·x or Aᵀ·x for vectors of N, one after the other. Throws ShapeMismatch.
  void multiply(std::span<double> y, std::span<const double> x, Transpose transpose) const;
  /// The gradients of all numbers of A in y = A·x for dy, in A's form: those of u and v in theirs.
  /// dx is multiply(dy, kYes).
  Hodlr gradients(std::span<const double> dy, std::span<const double> x) const;

  const std::vector<DiagonalBlock>& leaves() const { return leaves_; }
  /// The blocks above and below the diagonal of the nodes of a level, one after the other; level 0
  /// halves the matrix.
  const std::vector<std::vector<LowRankBlock>>& levels() const { return levels_; }
  std::vector<DiagonalBlock>& leaves() { return leaves_; }
  std::vector<std::vector<LowRankBlock>>& levels() { return levels_; }

 private:
  std::int64_t vectors_of(const char* what, std::size_t numbers) const;
  std::int64_t size_ = 0;
  std::vector<DiagonalBlock> leaves_;
  std::vector<std::vector<LowRankBlock>> levels_;
};

/// Solves with a Hodlr, which it factors once: O(N·r²·log² N), and as much memory again.
class HodlrSolver {
 public:
  explicit HodlrSolver(const Hodlr& matrix);
  ~HodlrSolver();
  /// Each vector of N in x becomes A⁻¹·it. Not finite where A is singular. Throws ShapeMismatch.
  void solve(std::span<double> x) const;

 private:
  struct Factors;
  std::unique_ptr<Factors> factors_;
};

}  // namespace hybrid_trainer::kernels
