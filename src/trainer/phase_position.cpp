#include "src/trainer/phase_position.h"

namespace hybrid_trainer {
namespace {

/// Delayed updates are no reason for another precision than Full's.
MixedPrecisionConfig precision_of(const HybridTrainerConfig& config) {
  MixedPrecisionConfig precision = config.mixed_precision;
  if (!config.phases.skips_backward() && precision.predict == "auto")
    precision.predict = precision.full;
  return precision;
}

}  // namespace

PhasePosition::PhasePosition(const HybridTrainerConfig& config, std::int64_t width,
                             TrainingStep& step)
    : step_(step), precision_(precision_of(config), width, step.stream().device()) {}

void PhasePosition::compute(bool records) { step_.compute_in(*(dtype_ = dtype()), records); }

void PhasePosition::set_steps_done(std::int64_t steps) {
  steps_done_ = steps;
  go_to_step();
}

void PhasePosition::rewind(std::int64_t steps) {
  rewound_ = steps;
  go_to_step();
}

/// In Warmup and Full a schedule stage may compute in a precision of its own.
DType PhasePosition::dtype() const {
  const bool is_staged = phase_ == Phase::kWarmup || phase_ == Phase::kFull;
  const std::optional<DType> own = step_.stretches().at(steps_done_ - rewound_).precision;
  return is_staged && own ? *own : precision_.of(phase_);
}

void PhasePosition::go_to_step() {
  step_.set_steps_done(steps_done_ - rewound_);
  if (dtype_ && dtype() != *dtype_) compute(true);
}

}  // namespace hybrid_trainer
