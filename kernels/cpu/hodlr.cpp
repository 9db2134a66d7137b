#include "hybrid_trainer/kernels/hodlr.h"

#include <algorithm>
#include <cmath>

#include "hybrid_trainer/core/error.h"
#include "hybrid_trainer/core/random.h"
#include "hybrid_trainer/core/thread_team.h"
#include "kernels/cpu/cross_approximation.h"
#include "kernels/cpu/thin_decompositions.h"

namespace hybrid_trainer::kernels {
namespace {

std::vector<double> numbers_of(const HodlrMatrix& matrix) {
  return {matrix.data(), matrix.data() + matrix.size()};
}

/// u·vᵀ in as few columns as leave out at most `tolerance` of its norm.
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

/// Borders of 2^level nodes of nearly equal size.
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
    throw ShapeMismatch(concat("Hodlr: y has ", y.size(), " numbers and x ", x.size()));
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
    throw ShapeMismatch(concat("Hodlr: dy has ", dy.size(), " numbers and x ", x.size()));
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

}  // namespace hybrid_trainer::kernels
