#pragma once

#include <Eigen/Core>

#include "hybrid_trainer/kernels/hodlr.h"

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

}  // namespace hybrid_trainer::kernels
