#include "kernels/cpu/thin_decompositions.h"

#include <Eigen/QR>
#include <Eigen/SVD>

namespace hybrid_trainer::kernels {
namespace {

using Qr = Eigen::HouseholderQR<Eigen::MatrixXd>;

Eigen::MatrixXd upper_of(const Qr& qr) {
  const Eigen::Index columns = qr.matrixQR().cols();
  return qr.matrixQR().topRows(columns).triangularView<Eigen::Upper>();
}

/// Q, of as many columns as `right`, times it.
Eigen::MatrixXd basis_times(const Qr& qr, const Eigen::MatrixXd& right) {
  Eigen::MatrixXd tall = Eigen::MatrixXd::Zero(qr.rows(), right.cols());
  tall.topRows(right.rows()) = right;
  tall.applyOnTheLeft(qr.householderQ());
  return tall;
}

}  // namespace

Eigen::MatrixXd orthonormal_basis(const Eigen::MatrixXd& columns) {
  return basis_times(Qr(columns), Eigen::MatrixXd::Identity(columns.cols(), columns.cols()));
}

ThinSvd svd_of_product(const Eigen::MatrixXd& a, const Eigen::MatrixXd& b) {
  const Qr left(a), right(b);
  const Eigen::MatrixXd middle = upper_of(left) * upper_of(right).transpose();
  const Eigen::JacobiSVD<Eigen::MatrixXd, Eigen::NoQRPreconditioner> svd(
      middle, Eigen::ComputeFullU | Eigen::ComputeFullV);
  return {basis_times(left, svd.matrixU()), basis_times(right, svd.matrixV()),
          svd.singularValues()};
}

}  // namespace hybrid_trainer::kernels
