#include <Eigen/LU>
#include <cmath>

#include "hybrid_trainer/core/error.h"
#include "hybrid_trainer/core/random.h"
#include "hybrid_trainer/kernels/hodlr.h"
#include "kernels/structured/thin_decompositions_cpu.h"
#include "src/core/threads.h"

namespace hybrid_trainer::kernels {

using HodlrMatrix = Eigen::MatrixXd;
using HodlrVector = Eigen::VectorXd;
using HodlrMap = Eigen::Map<const HodlrMatrix>;

inline HodlrMap u_of(const LowRankBlock& block) { return {block.u.data(), block.rows, block.rank}; }
inline HodlrMap v_of(const LowRankBlock& block) {
  return {block.v.data(), block.columns, block.rank};
}
inline HodlrMap values_of(const DiagonalBlock& leaf) {
  return {leaf.values.data(), leaf.size, leaf.size};
}

/// Approximates a block by a growing sum of crosses, each a row and a column of the residual.
class CrossApproximation {
 public:
  CrossApproximation(const LowRankBlock& place, const MatrixEntry& entry)
      : place_(place), entry_(entry), used_(static_cast<std::size_t>(place.rows)) {}

  void run(double tolerance) {
    const std::int64_t most = std::min(place_.rows, place_.columns);
    std::int64_t row = 0;
    while (rank() < most && row >= 0) row = add_cross_term(row, tolerance);
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

  /// Adds the cross through a row. Returns the next row, or -1 if the sum is accurate enough.
  std::int64_t add_cross_term(std::int64_t row, double tolerance) {
    HodlrVector v = row_left(row);
    used_[static_cast<std::size_t>(row)] = true;
    std::int64_t column = 0;
    const double pivot = v.cwiseAbs().maxCoeff(&column);
    if (!(pivot > tolerance * std::sqrt(norm_squared_) / static_cast<double>(place_.rows)))
      return find_residual_row(tolerance);
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
    return size > tolerance * std::sqrt(norm_squared_) ? next : find_residual_row(tolerance);
  }
  /// Checks some random rows and columns. Returns a row whose error exceeds `tolerance`, else -1.
  std::int64_t find_residual_row(double tolerance) {
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

namespace {

std::vector<double> numbers_of(const HodlrMatrix& matrix) {
  return {matrix.data(), matrix.data() + matrix.size()};
}

/// Truncates u·vᵀ to the smallest number of columns that loses at most `tolerance` of its norm.
void compress(LowRankBlock& block, const HodlrMatrix& u, const HodlrMatrix& v, double tolerance) {
  const std::int64_t rank = u.cols();
  if (rank == 0) return;
  const ThinSvd svd = svd_of_product(u, v);
  const double most = tolerance * svd.values.norm();
  block.rank = rank;
  while (block.rank > 0 && svd.values.tail(rank - block.rank + 1).norm() <= most) --block.rank;
  block.u = numbers_of(svd.u.leftCols(block.rank) * svd.values.head(block.rank).asDiagonal());
  block.v = numbers_of(svd.v.leftCols(block.rank));
}

std::vector<std::int64_t> borders_of(std::int64_t size, std::size_t level) {
  const std::int64_t nodes = std::int64_t{1} << level;
  std::vector<std::int64_t> borders;
  for (std::int64_t i = 0; i <= nodes; ++i) borders.push_back(size * i / nodes);
  return borders;
}

void fill_leaf(DiagonalBlock& leaf, const MatrixEntry& entry) {
  for (std::int64_t j = 0; j < leaf.size; ++j) {
    for (std::int64_t i = 0; i < leaf.size; ++i)
      leaf.values.push_back(entry(leaf.first + i, leaf.first + j));
  }
}

void check_hodlr(std::int64_t size, const HodlrSpec& spec) {
  if (size > 0 && spec.leaf > 0 && spec.tolerance > 0) return;
  throw Error(ExitCode::kConfig,
              concat("Hodlr: size ", size, ", leaf ", spec.leaf, ", tolerance ", spec.tolerance,
                     "; want numbers above 0, such as a leaf of 64 and a tolerance of 1e-6"));
}

}  // namespace

Hodlr::Hodlr(std::int64_t size, const MatrixEntry& entry, const HodlrSpec& spec) : size_(size) {
  check_hodlr(size, spec);
  std::size_t depth = 0;
  while ((size + (std::int64_t{1} << depth) - 1) >> depth > spec.leaf && size >> (depth + 1) > 0)
    ++depth;
  for (std::size_t level = 0; level < depth; ++level) {
    const std::vector<std::int64_t> borders = borders_of(size, level + 1);
    std::vector<LowRankBlock>& blocks = levels_.emplace_back();
    for (std::size_t i = 0; i + 2 < borders.size(); i += 2) {
      const std::int64_t first = borders[i], middle = borders[i + 1], end = borders[i + 2];
      blocks.push_back({first, middle - first, middle, end - middle, 0, {}, {}});
      blocks.push_back({middle, end - middle, first, middle - first, 0, {}, {}});
    }
    run_tasks(static_cast<std::int64_t>(blocks.size()), [&](std::int64_t, std::int64_t i) {
      LowRankBlock& block = blocks[static_cast<std::size_t>(i)];
      CrossApproximation crosses(block, entry);
      crosses.run(spec.tolerance / 10);
      compress(block, crosses.u(), crosses.v(), spec.tolerance);
    });
  }
  const std::vector<std::int64_t> borders = borders_of(size, depth);
  for (std::size_t i = 0; i + 1 < borders.size(); ++i)
    leaves_.push_back({borders[i], borders[i + 1] - borders[i], {}});
  run_tasks(static_cast<std::int64_t>(leaves_.size()), [&](std::int64_t, std::int64_t i) {
    fill_leaf(leaves_[static_cast<std::size_t>(i)], entry);
  });
}

std::int64_t Hodlr::largest_rank() const {
  std::int64_t most = 0;
  for (const auto& level : levels_)
    for (const LowRankBlock& block : level) most = std::max(most, block.rank);
  return most;
}

std::size_t Hodlr::bytes() const {
  std::size_t numbers = 0;
  for (const DiagonalBlock& leaf : leaves_) numbers += leaf.values.size();
  for (const auto& level : levels_)
    for (const LowRankBlock& block : level) numbers += block.u.size() + block.v.size();
  return numbers * sizeof(double);
}

std::size_t Hodlr::dense_bytes() const {
  return static_cast<std::size_t>(size_) * static_cast<std::size_t>(size_) * sizeof(double);
}

std::int64_t Hodlr::vectors_of(const char* what, std::size_t numbers) const {
  const auto count = static_cast<std::int64_t>(numbers);
  if (count % size_ != 0)
    throw ShapeMismatch(
        concat("Hodlr: ", what, " has ", count, " numbers, want a multiple of ", size_));
  return count / size_;
}

void Hodlr::multiply(std::span<double> y, std::span<const double> x, Transpose transpose) const {
  const std::int64_t count = vectors_of("x", x.size());
  if (y.size() != x.size())
    throw ShapeMismatch(concat("Hodlr: y has ", y.size(), " numbers, but x has ", x.size()));
  const HodlrMap from(x.data(), size_, count);
  Eigen::Map<HodlrMatrix> to(y.data(), size_, count);
  const bool transposed = transpose == Transpose::kYes;
  run_tasks(static_cast<std::int64_t>(leaves_.size()), [&](std::int64_t, std::int64_t i) {
    const DiagonalBlock& leaf = leaves_[static_cast<std::size_t>(i)];
    const auto part = from.middleRows(leaf.first, leaf.size);
    if (transposed) {
      to.middleRows(leaf.first, leaf.size).noalias() = values_of(leaf).transpose() * part;
    } else {
      to.middleRows(leaf.first, leaf.size).noalias() = values_of(leaf) * part;
    }
  });
  for (const auto& level : levels_) {
    run_tasks(static_cast<std::int64_t>(level.size()), [&](std::int64_t, std::int64_t i) {
      const LowRankBlock& block = level[static_cast<std::size_t>(i)];
      const auto rows = [&](auto& all) { return all.middleRows(block.first_row, block.rows); };
      const auto columns = [&](auto& all) {
        return all.middleRows(block.first_column, block.columns);
      };
      if (transposed) {
        const HodlrMatrix sums = u_of(block).transpose() * rows(from);
        columns(to).noalias() += v_of(block) * sums;
      } else {
        const HodlrMatrix sums = v_of(block).transpose() * columns(from);
        rows(to).noalias() += u_of(block) * sums;
      }
    });
  }
}

Hodlr Hodlr::gradients(std::span<const double> dy, std::span<const double> x) const {
  const std::int64_t count = vectors_of("x", x.size());
  if (dy.size() != x.size())
    throw ShapeMismatch(concat("Hodlr: dy has ", dy.size(), " numbers, but x has ", x.size()));
  const HodlrMap from(x.data(), size_, count), g(dy.data(), size_, count);
  Hodlr result = *this;
  for (DiagonalBlock& leaf : result.leaves_)
    leaf.values = numbers_of(g.middleRows(leaf.first, leaf.size) *
                             from.middleRows(leaf.first, leaf.size).transpose());
  for (std::size_t level = 0; level < levels_.size(); ++level) {
    for (std::size_t i = 0; i < levels_[level].size(); ++i) {
      const LowRankBlock& block = levels_[level][i];
      const auto g_rows = g.middleRows(block.first_row, block.rows);
      const auto x_rows = from.middleRows(block.first_column, block.columns);
      const HodlrMatrix of_x = v_of(block).transpose() * x_rows,
                        of_g = u_of(block).transpose() * g_rows;
      result.levels_[level][i].u = numbers_of(g_rows * of_x.transpose());
      result.levels_[level][i].v = numbers_of(x_rows * of_g.transpose());
    }
  }
  return result;
}

/// Factors of a node with children 1 and 2. Computes [A₁₁ u₁·v₁ᵀ; u₂·v₂ᵀ A₂₂]⁻¹ from the inverses
/// of the children, y₁ = A₁₁⁻¹·u₁ and y₂ = A₂₂⁻¹·u₂, and from the small matrix [1 v₁ᵀ·y₂; v₂ᵀ·y₁
/// 1].
struct HodlrSolver::Factors {
  struct Node {
    HodlrMatrix y1, y2, v1, v2;
    Eigen::PartialPivLU<HodlrMatrix> small;
    std::int64_t first, middle, end;
  };
  std::int64_t size = 0;
  std::vector<Eigen::PartialPivLU<HodlrMatrix>> leaves;
  std::vector<std::vector<Node>> levels;

  using Rows = Eigen::Ref<HodlrMatrix>;

  void make_node(std::size_t level, std::size_t i, const LowRankBlock& upper,
                 const LowRankBlock& lower) {
    Node& node = levels[level][i];
    node.first = upper.first_row, node.middle = lower.first_row;
    node.end = lower.first_row + lower.rows;
    node.y1 = u_of(upper), node.v1 = v_of(upper), node.y2 = u_of(lower), node.v2 = v_of(lower);
    solve(level + 1, 2 * i, node.y1);
    solve(level + 1, 2 * i + 1, node.y2);
    const std::int64_t r1 = upper.rank, r2 = lower.rank;
    HodlrMatrix small = HodlrMatrix::Identity(r1 + r2, r1 + r2);
    small.topRightCorner(r1, r2) = node.v1.transpose() * node.y2;
    small.bottomLeftCorner(r2, r1) = node.v2.transpose() * node.y1;
    if (r1 + r2 > 0) node.small.compute(small);
  }
  /// Solves for x in place. x has the rows of node i of a level.
  void solve(std::size_t level, std::size_t i, Rows x) const {
    if (level == levels.size()) {
      x = leaves[i].solve(x).eval();
      return;
    }
    const Node& node = levels[level][i];
    Rows top = x.topRows(node.middle - node.first), bottom = x.bottomRows(node.end - node.middle);
    solve(level + 1, 2 * i, top);
    solve(level + 1, 2 * i + 1, bottom);
    const std::int64_t r1 = node.y1.cols(), r2 = node.y2.cols();
    if (r1 + r2 == 0) return;
    HodlrMatrix sums(r1 + r2, x.cols());
    sums.topRows(r1) = node.v1.transpose() * bottom;
    sums.bottomRows(r2) = node.v2.transpose() * top;
    sums = node.small.solve(sums).eval();
    top.noalias() -= node.y1 * sums.topRows(r1);
    bottom.noalias() -= node.y2 * sums.bottomRows(r2);
  }
};

HodlrSolver::HodlrSolver(const Hodlr& matrix) : factors_(std::make_unique<Factors>()) {
  Factors& factors = *factors_;
  factors.size = matrix.size();
  for (const DiagonalBlock& leaf : matrix.leaves())
    factors.leaves.emplace_back(HodlrMatrix(values_of(leaf)));
  factors.levels.resize(matrix.levels().size());
  for (std::size_t level = matrix.levels().size(); level-- > 0;) {
    const std::vector<LowRankBlock>& blocks = matrix.levels()[level];
    factors.levels[level].resize(blocks.size() / 2);
    run_tasks(static_cast<std::int64_t>(blocks.size() / 2), [&](std::int64_t, std::int64_t i) {
      const auto node = static_cast<std::size_t>(i);
      factors.make_node(level, node, blocks[2 * node], blocks[2 * node + 1]);
    });
  }
}

HodlrSolver::~HodlrSolver() = default;

void HodlrSolver::solve(std::span<double> x) const {
  const auto count = static_cast<std::int64_t>(x.size());
  if (count % factors_->size != 0)
    throw ShapeMismatch(
        concat("HodlrSolver: x has ", count, " numbers, want a multiple of ", factors_->size));
  Eigen::Map<HodlrMatrix> all(x.data(), factors_->size, count / factors_->size);
  factors_->solve(0, 0, all);
}

}  // namespace hybrid_trainer::kernels
