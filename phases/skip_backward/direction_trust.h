#pragma once

#include <cstdint>
#include <vector>

#include "hybrid_trainer/core/state.h"

namespace hybrid_trainer {

/// How far the predicted direction d can be trusted: from the slopes <g_t, d_t> of the last Full
/// gradients, where d_t was fixed before g_t was measured, so that no slope is fitted to the noise
/// it is judged by.
///
/// The slopes are samples of the loss change per predicted step. Their mean over its standard error
/// is a t-statistic; confidence is the normal probability that the true mean is not above zero,
/// Φ(−mean/error). It needs one dot product per weight and step, and no pass over data.
class DirectionTrust {
 public:
  explicit DirectionTrust(std::int64_t window) : window_(window) {}
  void add(double slope);
  void clear() { slopes_.clear(); }
  std::int64_t count() const { return static_cast<std::int64_t>(slopes_.size()); }
  /// Expected loss change of one predicted step; 0 before the first slope.
  double mean_slope() const;
  /// In [0, 1]; 1 for a direction that changes nothing, 0 before the second slope.
  double confidence() const;

  void save(State& state) const { state.series["phases.trust.slopes"] = slopes_; }
  void load(const State& state) { slopes_ = state.reals_of("phases.trust.slopes"); }

 private:
  std::int64_t window_;
  std::vector<double> slopes_;  // the last `window`, oldest first
};

}  // namespace hybrid_trainer
