// A model's training in micro-batches that memory holds: how many there are in each phase.
#include <algorithm>

#include "hybrid_trainer/trainer/model_trainable.h"
#include "src/trainer/training_step.h"

namespace hybrid_trainer {
namespace {

constexpr const char* kMicroBatches = "trainer.micro_batches";
constexpr const char* kMicroBatchesBudget = "trainer.micro_batches.budget";

std::string micro_batches_key(Phase phase) { return concat(kMicroBatches, ".", name_of(phase)); }

}  // namespace

/// Each phase has its own number.
void ModelTrainable::take_micro_batches_of(Phase phase) {
  micro_batches_[static_cast<std::size_t>(phase_)] = step_->micro_batches();
  step_->set_micro_batches(micro_batches_[static_cast<std::size_t>(phase)]);
}

template <class Compute>
auto ModelTrainable::tell_halving(const Batch& batch, const Compute& compute) {
  const std::int64_t before = step_->micro_batches_of(batch);
  const auto result = compute();
  if (step_->micro_batches_of(batch) != before) {
    tell_(concat("memory is too small for micro-batches of ", batch.size() / before,
                 " examples in ", name_of(phase_), "; there they have ",
                 batch.size() / step_->micro_batches_of(batch), " from here on"));
  }
  return result;
}

std::int64_t ModelTrainable::micro_batches_of(const Batch& batch) const {
  return step_->micro_batches_of(batch);
}

double ModelTrainable::wait_for_loss_of(const Batch& batch, std::int64_t examples) {
  begin_return();
  if (phase_ == Phase::kPredict) step_->free_gradients();
  return tell_halving(batch, [&] { return step_->wait_for_loss(batch, examples); });
}

GradientMeasurement ModelTrainable::wait_for_gradient(const Batch& batch) {
  begin_return();
  return tell_halving(batch, [&] { return step_->wait_for_gradient(batch); });
}

double ModelTrainable::wait_for_own_gradient(const Batch& batch) {
  return tell_halving(batch, [&] { return step_->wait_for_own_gradient(batch); });
}

LocalStep ModelTrainable::wait_for_local_step(const Batch& batch) {
  return tell_halving(batch, [&] { return step_->wait_for_local_step(batch); });
}

/// Where a rank has halved its own alone, it goes on as a resumed run does, which does not know.
void ModelTrainable::save_micro_batches(State& state) {
  micro_batches_[static_cast<std::size_t>(phase_)] = step_->micro_batches();
  for (const Phase phase : kAllPhases)
    state.integers[micro_batches_key(phase)] = micro_batches_[static_cast<std::size_t>(phase)];
  state.integers[kMicroBatches] = step_->micro_batches();
  state.integers[kMicroBatchesBudget] = static_cast<std::int64_t>(budget_bytes_);
  step_->set_micro_batches(step_->micro_batches());
}

/// A checkpoint's numbers, so that bits do not depend on when a run was stopped. Where the budget
/// has grown since, each phase tries the config's again; a number that was found without a budget
/// stays, as what other programs take of the memory decides nothing.
void ModelTrainable::load_micro_batches(const State& state) {
  if (!state.integers.contains(kMicroBatches)) return;
  const auto saved = [&](const std::string& key) {
    return state.integer(state.integers.contains(key) ? key : kMicroBatches);
  };
  for (const Phase phase : kAllPhases)
    micro_batches_[static_cast<std::size_t>(phase)] = saved(micro_batches_key(phase));
  const bool has_budget = state.integers.contains(kMicroBatchesBudget);
  const auto budget = has_budget ? static_cast<std::size_t>(state.integer(kMicroBatchesBudget)) : 0;
  const bool halved =
      std::any_of(micro_batches_.begin(), micro_batches_.end(),
                  [&](std::int64_t count) { return count != micro_batches_of_config_; });
  if (halved && budget > 0 && (budget_bytes_ == 0 || budget_bytes_ > budget)) {
    micro_batches_.fill(micro_batches_of_config_);
    tell_("the budget has grown: micro-batches are as large as at first until memory is too small");
  }
  step_->set_micro_batches(micro_batches_[static_cast<std::size_t>(phase_)]);
}

}  // namespace hybrid_trainer
