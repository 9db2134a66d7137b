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

/// Returns the ranks of the values, from 1 on. Equal values have the mean of their ranks.
std::vector<double> mean_ranks(std::span<const double> values);

/// Return the correlation of values and of ranks; none if all values of `a` or of `b` are equal.
std::optional<double> pearson_correlation(std::span<const double> a, std::span<const double> b);
std::optional<double> spearman_correlation(std::span<const double> a, std::span<const double> b);

/// Returns the probability that a positive example has a higher score than a negative one, or half
/// of it for equal scores: the area under the ROC curve; none if all examples are of one kind.
std::optional<double> area_under_roc(std::span<const double> scores,
                                     const std::vector<bool>& is_positive);

/// Returns the precision among the examples with a positive example's score or a higher one, as a
/// mean over the positive examples; none if there are none.
std::optional<double> average_precision(std::span<const double> scores,
                                        const std::vector<bool>& is_positive);

}  // namespace hybrid_trainer
