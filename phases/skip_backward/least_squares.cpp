#include "phases/skip_backward/least_squares.h"

#include <Eigen/Dense>

namespace hybrid_trainer {

std::optional<LeastSquaresFit> fit_least_squares(const std::vector<std::vector<double>>& columns,
                                                 const std::vector<double>& y) {
  const auto rows = static_cast<Eigen::Index>(y.size());
  const auto count = static_cast<Eigen::Index>(columns.size());
  if (rows <= count) return std::nullopt;
  Eigen::MatrixXd design(rows, count);
  for (Eigen::Index j = 0; j < count; ++j)
    design.col(j) =
        Eigen::Map<const Eigen::VectorXd>(columns[static_cast<std::size_t>(j)].data(), rows);
  const Eigen::Map<const Eigen::VectorXd> values(y.data(), rows);
  const Eigen::MatrixXd covariance =
      (design.transpose() * design).ldlt().solve(Eigen::MatrixXd::Identity(count, count));
  const Eigen::VectorXd coefficients = design.colPivHouseholderQr().solve(values);
  const Eigen::VectorXd residuals = values - design * coefficients;
  const double variance = residuals.squaredNorm() / static_cast<double>(rows - count);
  const Eigen::VectorXd errors = (variance * covariance.diagonal()).cwiseMax(0.0).cwiseSqrt();
  return LeastSquaresFit{{coefficients.begin(), coefficients.end()},
                         {errors.begin(), errors.end()},
                         {residuals.begin(), residuals.end()}};
}

}  // namespace hybrid_trainer
