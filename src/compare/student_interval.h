#pragma once

#include <vector>

namespace hybrid_trainer {

struct Interval {
  double mean = 0;
  double low = 0, high = 0;  // NaN for a single value
};

/// Returns the mean of n values with its Student-t interval, mean ± t·s/√n with n − 1 degrees of
/// freedom. `confidence` is in (0, 1). Throws Error(kInternal) without a value.
Interval student_interval(const std::vector<double>& values, double confidence = 0.95);

}  // namespace hybrid_trainer
