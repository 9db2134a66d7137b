#pragma once

#include <algorithm>
#include <vector>

namespace hybrid_trainer {

/// Of an even count the upper one. `values`: not empty.
inline double median(std::vector<double> values) {
  const auto middle = values.begin() + static_cast<std::ptrdiff_t>(values.size() / 2);
  std::nth_element(values.begin(), middle, values.end());
  return *middle;
}

}  // namespace hybrid_trainer
