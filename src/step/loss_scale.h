#pragma once

#include <cstdint>

#include "hybrid_trainer/config/training_config.h"
#include "hybrid_trainer/core/state.h"

namespace hybrid_trainer {

/// Factor of the loss in fp16, so that small gradients do not become 0 and large ones stay finite.
class LossScale {
 public:
  static constexpr std::int64_t kLargest = std::int64_t{1} << 24;

  explicit LossScale(const MixedPrecisionConfig& config)
      : value_(config.loss_scale), growth_steps_(config.loss_scale_growth_steps) {}
  double value() const { return static_cast<double>(value_); }
  /// Steps whose gradient overflowed.
  std::int64_t overflows() const { return overflows_; }
  /// A step's gradient overflowed: halves the factor. False where it is 1 already, so that the factor
  /// is not the reason.
  bool halve();
  /// A step's gradient was finite; true where that doubled the factor.
  bool add_finite_step();
  void save(State& state) const;
  void load(const State& state);

 private:
  std::int64_t value_, growth_steps_;
  std::int64_t finite_steps_ = 0;  // in a row, since the factor changed
  std::int64_t overflows_ = 0;
};

}  // namespace hybrid_trainer
