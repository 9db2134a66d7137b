#pragma once

#include <cmath>
#include <cstdint>

namespace hybrid_trainer {

/// Mean of losses and its standard error.
class MeasuredLoss {
 public:
  void add(double loss) { sum_ += loss, squares_ += loss * loss, ++count_; }
  double mean() const { return sum_ / count_; }
  double deviation() const { return std::sqrt((squares_ / count_ - mean() * mean()) / count_); }
  double count() const { return count_; }

 private:
  double sum_ = 0, squares_ = 0, count_ = 0;
};

/// Loss of a label for a predictor that knows the true label and the noise.
inline double loss_of_label(bool is_right, std::int64_t labels, double noise) {
  return -std::log(is_right ? 1 - noise : noise / static_cast<double>(labels - 1));
}

}  // namespace hybrid_trainer
