#include "phases/skip_backward/least_squares.h"

#include <gtest/gtest.h>

#include <cmath>

namespace hybrid_trainer {
namespace {

TEST(FitLeastSquares, FitsLineWithStandardErrors) {
  // y = 1 + 2t with residuals +1 −1 −1 +1; σ² = 4/2, Σ(t − 1.5)² = 5.
  const auto fit = fit_least_squares({{1, 1, 1, 1}, {0, 1, 2, 3}}, {2, 2, 4, 8});
  ASSERT_TRUE(fit);
  EXPECT_NEAR(fit->coefficients[0], 1, 1e-12);
  EXPECT_NEAR(fit->coefficients[1], 2, 1e-12);
  EXPECT_NEAR(fit->standard_errors[1], std::sqrt(2.0 / 5), 1e-12);
  EXPECT_NEAR(fit->residuals[2], -1, 1e-12);
}

TEST(FitLeastSquares, NeedsMoreValuesThanColumns) {
  EXPECT_FALSE(fit_least_squares({{1, 1}, {0, 1}}, {3, 4}));
}

}  // namespace
}  // namespace hybrid_trainer
