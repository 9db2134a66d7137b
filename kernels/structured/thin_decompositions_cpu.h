#pragma once

#include <Eigen/Core>

namespace hybrid_trainer::kernels {

/// A decomposition u·diag(values)·vᵀ. u and v have orthonormal columns; values are descending.
struct ThinSvd {
  Eigen::MatrixXd u, v;
  Eigen::VectorXd values;
};

/// Returns orthonormal columns (N, k) that span the columns of the matrix, N >= k.
Eigen::MatrixXd orthonormal_basis(const Eigen::MatrixXd& columns);

/// Returns the singular value decomposition of a·bᵀ, for a (M, k) and b (N, k) with M, N >= k >= 1,
/// by QR decompositions and Jacobi rotations.
ThinSvd svd_of_product(const Eigen::MatrixXd& a, const Eigen::MatrixXd& b);

}  // namespace hybrid_trainer::kernels
