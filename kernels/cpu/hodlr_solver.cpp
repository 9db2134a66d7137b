#include "hybrid_trainer/kernels/hodlr_solver.h"

#include <Eigen/LU>

#include "hybrid_trainer/core/error.h"
#include "hybrid_trainer/core/thread_team.h"
#include "kernels/cpu/hodlr_blocks.h"

namespace hybrid_trainer::kernels {

/// Of a node of halves 1 and 2: [A₁₁ u₁·v₁ᵀ; u₂·v₂ᵀ A₂₂]⁻¹ by the halves' inverses y₁ = A₁₁⁻¹·u₁,
/// y₂ = A₂₂⁻¹·u₂ and the small matrix [1 v₁ᵀ·y₂; v₂ᵀ·y₁ 1].
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
  /// x: the rows of node i of a level.
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
