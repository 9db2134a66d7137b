#pragma once

#include <optional>
#include <vector>

namespace hybrid_trainer {

struct LeastSquaresFit {
  std::vector<double> coefficients;
  std::vector<double> standard_errors;  // standard errors of the coefficients, from the residuals
  std::vector<double> residuals;
};

/// Fits y ≈ Σ coefficients[j]·columns[j]. Returns none if there are not more values than columns.
std::optional<LeastSquaresFit> fit_least_squares(const std::vector<std::vector<double>>& columns,
                                                 const std::vector<double>& y);

}  // namespace hybrid_trainer
