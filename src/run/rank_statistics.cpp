#include "src/run/rank_statistics.h"

#include <algorithm>
#include <boost/math/distributions/students_t.hpp>
#include <cmath>
#include <functional>
#include <limits>
#include <numeric>

#include "hybrid_trainer/core/error.h"

namespace hybrid_trainer {

namespace {

std::vector<std::size_t> order_of(std::span<const double> values) {
  std::vector<std::size_t> order(values.size());
  std::iota(order.begin(), order.end(), std::size_t{0});
  std::ranges::sort(order, {}, [&](std::size_t i) { return values[i]; });
  return order;
}

/// Calls use(begin, end) for each maximal range of equal values in `order`.
template <class Order, class Use>
void for_each_tie(std::span<const double> values, const Order& order, const Use& use) {
  for (std::size_t begin = 0, end = 0; begin < order.size(); begin = end) {
    while (end < order.size() && values[order[end]] == values[order[begin]]) ++end;
    use(begin, end);
  }
}

}  // namespace

ShareInterval wilson_interval(double right, double count) {
  constexpr double kDeviations = 1.959963985;  // normal quantile of a 95 % interval
  const double share = right / count;
  const double square = kDeviations * kDeviations, whole = 1 + square / count;
  const double middle = (share + square / (2 * count)) / whole;
  const double half =
      kDeviations / whole * std::sqrt(share * (1 - share) / count + square / (4 * count * count));
  const bool is_none = right <= 0, is_all = right >= count;  // exact
  return {is_none ? 0 : middle - half, is_all ? 1 : middle + half};
}

Interval student_interval(const std::vector<double>& values, double confidence) {
  require(!values.empty(), "student_interval: no value");
  const double n = static_cast<double>(values.size());
  double mean = 0, squares = 0;
  for (const double value : values) mean += value / n;
  for (const double value : values) squares += (value - mean) * (value - mean);
  constexpr double kNone = std::numeric_limits<double>::quiet_NaN();
  if (values.size() == 1) return {mean, kNone, kNone};
  const boost::math::students_t distribution(n - 1);
  const double t = quantile(complement(distribution, (1 - confidence) / 2));
  const double half = t * std::sqrt(squares / (n - 1) / n);
  return {mean, mean - half, mean + half};
}

std::vector<double> mean_ranks(std::span<const double> values) {
  std::vector<double> ranks(values.size());
  const std::vector<std::size_t> order = order_of(values);
  for_each_tie(values, order, [&](std::size_t begin, std::size_t end) {
    for (std::size_t i = begin; i < end; ++i)
      ranks[order[i]] = static_cast<double>(begin + 1 + end) / 2;
  });
  return ranks;
}

std::optional<double> pearson_correlation(std::span<const double> a, std::span<const double> b) {
  require(a.size() == b.size(), "a correlation needs the same number of values on both sides");
  const auto varies = [](std::span<const double> values) {
    return std::ranges::adjacent_find(values, std::not_equal_to<>()) != values.end();
  };
  if (!varies(a) || !varies(b)) return {};
  const auto n = static_cast<double>(a.size());
  const double mean_a = std::reduce(a.begin(), a.end()) / n;
  const double mean_b = std::reduce(b.begin(), b.end()) / n;
  double both = 0, square_a = 0, square_b = 0;
  for (std::size_t i = 0; i < a.size(); ++i) {
    const double x = a[i] - mean_a, y = b[i] - mean_b;
    both += x * y;
    square_a += x * x;
    square_b += y * y;
  }
  return std::clamp(both / std::sqrt(square_a) / std::sqrt(square_b), -1.0, 1.0);
}

std::optional<double> spearman_correlation(std::span<const double> a, std::span<const double> b) {
  return pearson_correlation(mean_ranks(a), mean_ranks(b));
}

std::optional<double> area_under_roc(std::span<const double> scores,
                                     const std::vector<bool>& is_positive) {
  const std::vector<double> ranks = mean_ranks(scores);
  double sum = 0;
  for (std::size_t i = 0; i < ranks.size(); ++i)
    if (is_positive[i]) sum += ranks[i];
  const auto positive = static_cast<double>(std::ranges::count(is_positive, true));
  const double negative = static_cast<double>(scores.size()) - positive;
  if (positive == 0 || negative == 0) return {};
  return (sum - positive * (positive + 1) / 2) / (positive * negative);
}

std::optional<double> average_precision(std::span<const double> scores,
                                        const std::vector<bool>& is_positive) {
  std::vector<std::size_t> order = order_of(scores);
  std::ranges::reverse(order);
  double found = 0, sum = 0;
  for_each_tie(scores, order, [&](std::size_t begin, std::size_t end) {
    double here = 0;
    for (std::size_t i = begin; i < end; ++i) here += is_positive[order[i]] ? 1 : 0;
    found += here;
    sum += here * found / static_cast<double>(end);
  });
  return found == 0 ? std::nullopt : std::optional(sum / found);
}

}  // namespace hybrid_trainer
