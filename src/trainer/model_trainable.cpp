#include "src/trainer/model_trainable.h"

#include <algorithm>

#include "hybrid_trainer/core/error.h"
#include "memory/away_weights.h"
#include "src/trainer/expert_routing.h"

namespace hybrid_trainer {

namespace {

constexpr const char* kMicroBatchesBudget = "trainer.micro_batches.budget";

std::string micro_batches_key(Phase phase) {
  return concat("trainer.micro_batches.", name_of(phase));
}

/// Delayed updates are no reason for another precision than Full's.
MixedPrecisionConfig precision_of(const HybridTrainerConfig& config) {
  MixedPrecisionConfig precision = config.mixed_precision;
  if (!config.phases.traits().skips_backward && precision.predict == "auto")
    precision.predict = precision.full;
  return precision;
}

/// Number of inputs of the largest matrix: the width of this model's products.
std::int64_t typical_width(LossModel& model) {
  std::int64_t width = 64, most = 0;
  model.visit_parameters([&](const Parameter& parameter) {
    if (!is_matrix(parameter.role()) || parameter.elements() <= most) return;
    most = parameter.elements();
    width = parameter.shape()[1];
  });
  return width;
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

ModelTrainable::ModelTrainable(LossModel& model, const HybridTrainerConfig& config,
                               const Stream& stream, std::shared_ptr<MemoryPlaces> places,
                               Tell tell, Communicator* ranks)
    : model_(model),
      stream_(stream),
      ranks_(ranks),
      predicts_backward_(config.phases.traits().skips_backward),
      places_(std::move(places)),
      tell_(std::move(tell)),
      step_(model, config, stream, *places_, ranks),
      micro_batches_(config, step_.micro_batches()),
      position_(config, typical_width(model), step_),
      offload_(config, *places_, step_, tell_),
      rollback_(step_, position_, *places_),
      average_(config.training.average_weights, places_->overflow()),
      routers_(model, stream),
      weights_(step_, offload_, average_, *places_),
      pending_(make_pending_work({config.phases, config.optimizer, step_, tell_})) {
  const DeviceMap map(config.memory);
  if (map.farthest() != "device") move_weights(model, map, *places_);
  step_.on_halving([this](const Batch& batch, std::int64_t before) {
    tell_(concat("memory is too small for micro-batches of ", batch.size() / before,
                 " examples in ", name_of(position_.phase()), "; there they have ",
                 batch.size() / step_.micro_batches().of(batch), " from here on"));
  });
}

/// Recordings hold the memory of a backward pass, so there is none in Predict, whose few gradients
/// are those of micro-corrections.
void ModelTrainable::enter_phase(Phase phase) {
  micro_batches_.enter(phase);
  step_.optimizer().leave_device(stream_);
  position_.set_phase(phase);
  const bool predicts = phase == Phase::kPredict && predicts_backward_;
  if (predicts) {
    step_.free_gradients();
    offload_.move_state_out();
  } else {
    offload_.end_predict();
  }
  position_.compute(!predicts);
  if (predicts) {
    routers_.take();
    offload_.move_masters_out();
  } else {
    routers_.drop();
  }
  if (phase == Phase::kPredict) pending_->enter_predict();
  if (border_) return;  // Full's precision in a step of Correct
  border_ = stream_.pool()->use();
  stream_.pool()->reset_peaks();
}

double ModelTrainable::wait_for_loss(const Batch& batch, std::int64_t examples) {
  const Phase phase = position_.phase();
  offload_.begin_return(phase);
  if (phase == Phase::kPredict) step_.free_gradients();
  return step_.wait_for_loss(batch, examples);
}

GradientMeasurement ModelTrainable::wait_for_gradient(const Batch& batch) {
  offload_.begin_return(position_.phase());
  return step_.wait_for_gradient(batch);
}

void ModelTrainable::apply_gradient() {
  offload_.wait_until_restored();
  step_.apply_gradient();
  pending_->observe_update(step_.scales().clip_scale());
  if (step_.parts() != nullptr) step_.publish_weights();
  average_.add(step_.parameters(), stream_);
}

void ModelTrainable::balance_experts() { move_selection_biases(model_, ranks_, stream_); }

void ModelTrainable::exchange_average() {
  average_.exchange(step_.parameters(), stream_);
  if (step_.parts() == nullptr) return;
  step_.publish_weights();
  step_.send_weights();
}

void ModelTrainable::with_average(const std::function<void()>& read_out) {
  if (!average_.exists()) return;
  exchange_average();
  try {
    read_out();
  } catch (const Diverged&) {
    exchange_average();
    throw;
  } catch (...) {  // which one of several ranks may meet alone
    if (!is_one_of_several()) exchange_average();
    throw;
  }
  exchange_average();
}

void ModelTrainable::save(State& state) {
  step_.require_whole_update();
  stream_.synchronize();
  offload_.prepare_save(state, position_.phase());
  save_weights(state, step_, offload_.is_dropped());
  micro_batches_.save(state);
  rollback_.save(state);
  average_.save(state, step_.parameters());
  routers_.save(state);
  save_selection_biases(model_, state);
  if (step_.states() != nullptr) step_.states()->save(state);
  position_.precision().save(state);
  step_.scales().save(state);
  pending_->save(state);
}

void ModelTrainable::load(const State& state) {
  pending_->drop();
  offload_.prepare_load(state);
  rollback_.drop_snapshot();
  load_weights(state, step_);
  average_.load(state, step_.parameters(), stream_);
  routers_.load(state);
  load_selection_biases(model_, state, stream_);
  if (step_.states() != nullptr) step_.states()->load(state, stream_);
  position_.precision().load(state);
  step_.scales().load(state);
  micro_batches_.load(state, tell_);
  step_.publish_weights();
  step_.send_weights();
  if (step_.speculation() != nullptr) step_.compute_in(precision().of(Phase::kPredict), true);
  pending_->load(state);
  rollback_.load(state);
}

}  // namespace hybrid_trainer
