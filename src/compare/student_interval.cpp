#include "src/compare/student_interval.h"

#include <boost/math/distributions/students_t.hpp>
#include <cmath>
#include <limits>

#include "hybrid_trainer/core/error.h"

namespace hybrid_trainer {

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

}  // namespace hybrid_trainer
