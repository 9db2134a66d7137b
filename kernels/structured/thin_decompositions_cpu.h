#pragma once

#include <Eigen/Core>

namespace hybrid_trainer::kernels {

/// u·diag(values)·vᵀ, with orthonormal columns; the values fall.
struct ThinSvd {
  Eigen::MatrixXd u, v;
  Eigen::VectorXd values;
};

/// Columns (N, k) that are orthonormal and span those of the matrix, N >= k.
Eigen::MatrixXd orthonormal_basis(const Eigen::MatrixXd& columns);

/// The singular value decomposition of a·bᵀ, of a (M, k) and b (N, k) with M, N >= k >= 1: by QR of
/// both and Jacobi rotations of the (k, k) between them.
ThinSvd svd_of_product(const Eigen::MatrixXd& a, const Eigen::MatrixXd& b);

}  // namespace hybrid_trainer::kernels
