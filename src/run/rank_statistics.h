#pragma once

#include <optional>
#include <span>
#include <vector>

namespace hybrid_trainer {

/// 95 % confidence interval of a share.
struct ShareInterval {
  double low = 0, high = 0;
};
/// Returns the Wilson interval of the share right / count, for a count of at least 1.
ShareInterval wilson_interval(double right, double count);

struct Interval {
  double mean = 0;
  double low = 0, high = 0;  // NaN for a single value
};
/// Returns the mean of n values with its Student-t interval, mean ± t·s/√n with n − 1 degrees of
/// freedom. `confidence` is in (0, 1). Throws Error(kInternal) without a value.
Interval student_interval(const std::vector<double>& values, double confidence = 0.95);

/// Returns the ranks of the values, counted from 1. Equal values have the mean of their ranks.
std::vector<double> mean_ranks(std::span<const double> values);

/// Return the correlation of the values (Pearson) or of their ranks (Spearman). Return nullopt if
/// all values of `a` or all values of `b` are equal.
std::optional<double> pearson_correlation(std::span<const double> a, std::span<const double> b);
std::optional<double> spearman_correlation(std::span<const double> a, std::span<const double> b);

/// Returns the area under the ROC curve: the probability that a positive example has a higher score
/// than a negative example, where equal scores count half. Returns nullopt if all examples are
/// positive or all are negative.
std::optional<double> area_under_roc(std::span<const double> scores,
                                     const std::vector<bool>& is_positive);

/// Returns the average precision: the mean, over the positive examples, of the precision among all
/// examples with at least the positive example's score. Returns nullopt if there are no positive
/// examples.
std::optional<double> average_precision(std::span<const double> scores,
                                        const std::vector<bool>& is_positive);

}  // namespace hybrid_trainer
