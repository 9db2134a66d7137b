#pragma once

#include <string>
#include <vector>

#include "hybrid_trainer/core/state.h"
#include "hybrid_trainer/phases/divergence_config.h"
#include "hybrid_trainer/phases/trainable.h"

namespace hybrid_trainer {

/// Fault of a measurement. All but kNotFinite are warnings: no Predict may begin, and one in
/// progress ends. Values that are not finite must not reach the weights.
enum class Signal { kNone, kNotFinite, kLoss, kExplosion, kVanishing, kOscillation };

struct Verdict {
  Signal signal = Signal::kNone;
  std::string reason;  // "" where nothing is wrong
  bool normal() const { return signal == Signal::kNone; }
};

/// Watches loss and gradient norm of the updates. Until `window` updates have been seen, only
/// values that are not finite are reported.
class DivergenceMonitor {
 public:
  explicit DivergenceMonitor(const DivergenceConfig& config) : config_(config) {}

  /// Judges a measurement against the updates seen so far, without adding it.
  Verdict assess(const GradientMeasurement& measurement) const;
  /// Judges a forward loss against the expected one; a loss that is as expected is normal.
  Verdict assess_loss(double loss, double expected) const;
  /// Adds the measurement of an update.
  void observe(const GradientMeasurement& measurement);

  /// An oscillation was answered by leaving an update out: it is judged anew once the window holds
  /// later losses alone. The losses that show it would else show it for ever.
  void use_up_oscillation() { used_up_ = static_cast<std::int64_t>(losses_.size()); }

  /// Mean loss of the updates in the window; NaN before the first.
  double mean_loss() const;

  void save(State& state) const;
  void load(const State& state);

 private:
  bool ready() const;
  DivergenceConfig config_;
  std::vector<double> losses_, norms_;  // the last `window` updates, oldest first
  std::int64_t used_up_ = 0;            // the oldest losses, whose oscillation was answered
};

}  // namespace hybrid_trainer
