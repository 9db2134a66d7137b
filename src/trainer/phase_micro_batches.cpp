#include "src/trainer/phase_micro_batches.h"

#include <algorithm>

#include "hybrid_trainer/core/error.h"

namespace hybrid_trainer {
namespace {

constexpr const char* kMicroBatches = "trainer.micro_batches";
constexpr const char* kMicroBatchesBudget = "trainer.micro_batches.budget";

std::string micro_batches_key(Phase phase) { return concat(kMicroBatches, ".", name_of(phase)); }

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
  state.integers[kMicroBatches] = step_.count();
  state.integers[kMicroBatchesBudget] = static_cast<std::int64_t>(budget_bytes_);
  step_.set_count(step_.count());
}

void PhaseMicroBatches::load(const State& state,
                             const std::function<void(const std::string&)>& tell) {
  if (!state.integers.contains(kMicroBatches)) return;
  const auto saved = [&](const std::string& key) {
    return state.integer(state.integers.contains(key) ? key : kMicroBatches);
  };
  for (const Phase phase : kAllPhases)
    counts_[static_cast<std::size_t>(phase)] = saved(micro_batches_key(phase));
  const bool has_budget = state.integers.contains(kMicroBatchesBudget);
  const auto budget = has_budget ? static_cast<std::size_t>(state.integer(kMicroBatchesBudget)) : 0;
  const bool halved = std::any_of(counts_.begin(), counts_.end(),
                                  [&](std::int64_t count) { return count != of_config_; });
  if (halved && budget > 0 && (budget_bytes_ == 0 || budget_bytes_ > budget)) {
    counts_.fill(of_config_);
    tell("the budget has grown: micro-batches are as large as at first until memory is too small");
  }
  step_.set_count(counts_[static_cast<std::size_t>(phase_)]);
}

}  // namespace hybrid_trainer
