#include "phases/skip_backward/direction_trust.h"

#include <cmath>
#include <numeric>

namespace hybrid_trainer {

void DirectionTrust::add(double slope) {
  if (count() == window_) slopes_.erase(slopes_.begin());
  slopes_.push_back(slope);
}

double DirectionTrust::mean_slope() const {
  if (slopes_.empty()) return 0;
  return std::accumulate(slopes_.begin(), slopes_.end(), 0.0) / static_cast<double>(count());
}

double DirectionTrust::confidence() const {
  if (count() < 2) return 0;
  const double mean = mean_slope();
  double squares = 0;
  for (const double slope : slopes_) squares += (slope - mean) * (slope - mean);
  const auto n = static_cast<double>(count());
  const double error = std::sqrt(squares / (n * (n - 1)));
  if (error == 0) return mean <= 0 ? 1.0 : 0.0;
  return 0.5 * std::erfc(mean / error / std::sqrt(2.0));
}

}  // namespace hybrid_trainer
