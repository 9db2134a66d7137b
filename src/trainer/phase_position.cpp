#include "src/trainer/phase_position.h"

#include <algorithm>

#include "hybrid_trainer/core/error.h"

namespace hybrid_trainer {
namespace {

constexpr const char* kMicroBatchesBudget = "trainer.micro_batches.budget";

std::string micro_batches_key(Phase phase) {
  return concat("trainer.micro_batches.", name_of(phase));
}

/// Delayed updates are no reason for another precision than Full's.
MixedPrecisionConfig precision_of(const HybridTrainerConfig& config) {
  MixedPrecisionConfig precision = config.mixed_precision;
  if (!config.phases.skips_backward() && precision.predict == "auto")
    precision.predict = precision.full;
  return precision;
}

}  // namespace

PhaseMicroBatches::PhaseMicroBatches(const HybridTrainerConfig& config, MicroBatches& step)
    : of_config_(config.gradient_accumulation.micro_batches),
      budget_bytes_(config.device_budget().value_or(0)),
      step_(step) {
  counts_.fill(of_config_);
}

void PhaseMicroBatches::enter(Phase phase) {
  counts_[static_cast<std::size_t>(phase_)] = step_.count();
  phase_ = phase;
  step_.set_count(counts_[static_cast<std::size_t>(phase)]);
}

void PhaseMicroBatches::save(State& state) {
  counts_[static_cast<std::size_t>(phase_)] = step_.count();
  for (const Phase phase : kAllPhases)
    state.integers[micro_batches_key(phase)] = counts_[static_cast<std::size_t>(phase)];
  state.integers[kMicroBatchesBudget] = static_cast<std::int64_t>(budget_bytes_);
  step_.set_count(step_.count());
}

void PhaseMicroBatches::load(const State& state,
                             const std::function<void(const std::string&)>& tell) {
  for (const Phase phase : kAllPhases)
    counts_[static_cast<std::size_t>(phase)] = state.integer(micro_batches_key(phase));
  const auto budget = static_cast<std::size_t>(state.integer(kMicroBatchesBudget));
  const bool halved = std::any_of(counts_.begin(), counts_.end(),
                                  [&](std::int64_t count) { return count != of_config_; });
  if (halved && budget > 0 && (budget_bytes_ == 0 || budget_bytes_ > budget)) {
    counts_.fill(of_config_);
    tell("the budget has grown: micro-batches are as large as at first until memory is too small");
  }
  step_.set_count(counts_[static_cast<std::size_t>(phase_)]);
}

PhasePosition::PhasePosition(const HybridTrainerConfig& config, std::int64_t width,
                             TrainingStep& step)
    : step_(step),
      precision_(precision_of(config), width, step.stream().device()),
      device_(step.stream().device()) {}

void PhasePosition::compute(bool records) { step_.compute_in(*(chosen_ = wanted()), records); }

void PhasePosition::set_steps_done(std::int64_t steps) {
  steps_done_ = steps;
  go_to_step();
}

void PhasePosition::rewind(std::int64_t steps) {
  rewound_ = steps;
  go_to_step();
}

/// In Warmup and Full a schedule stage may compute in a precision of its own.
Precision PhasePosition::wanted() const {
  const bool is_staged = phase_ == Phase::kWarmup || phase_ == Phase::kFull;
  const std::optional<std::string>& own = step_.stretches().at(steps_done_ - rewound_).precision;
  return is_staged && own ? precision_named(*own, device_) : precision_.of(phase_);
}

void PhasePosition::go_to_step() {
  step_.set_steps_done(steps_done_ - rewound_);
  if (chosen_ && wanted() != *chosen_) compute(true);
}

}  // namespace hybrid_trainer
