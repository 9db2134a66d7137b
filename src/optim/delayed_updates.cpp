#include "src/optim/delayed_updates.h"

namespace hybrid_trainer {

DelayedUpdates::DelayedUpdates(const SpeculationSetup& setup)
    : lag_(setup.settings.lag),
      weights_(setup.parameters.size()),
      exact_(setup),
      arrived_(static_cast<std::size_t>(lag_)),
      worker_(setup.settings.worker_threads, !setup.device.device().simulated) {}

void DelayedUpdates::begin_step(const Stream&) {
  require(!is_delayed_, "updates are pending; wait_for_exact_weights first");
  exact_.begin_step();
  ++steps_;
}

void DelayedUpdates::write_momentum_directions(const std::vector<Tensor>&, float, const Stream&) {
  require(false, "an optimizer whose state is off the device does not provide momentum directions");
}

void DelayedUpdates::visit_state(const StateVisitor& visit) {
  worker_.wait_until_idle();
  exact_.visit_state(visit);
}

void DelayedUpdates::set_steps_taken(std::int64_t steps) {
  steps_ = steps;
  exact_.optimizer().set_steps_taken(steps);
}

void DelayedUpdates::update_weight(std::size_t index, float learning_rate, float gradient_scale,
                                   const Stream& stream) {
  for (ExactWeight& weight : exact_.of_parameter(index)) {
    if (!weight.parameter->gradient()) return;
    const Tensor gradient = current_gradient(weight, stream);
    const LoadedWeight here = exact_.load(weight);
    exact_.update(weight, gradient, learning_rate, gradient_scale);
    weight.live->refresh_from(here.master(), stream, weight.first_row);
    if (!exact_.are_on_host()) stream.synchronize();  // before the loaded weight is released
  }
}

Tensor DelayedUpdates::current_gradient(const ExactWeight& weight, const Stream& stream) {
  const Tensor gradient = weight.parameter->gradient();
  if (gradient.device().type == exact_.host().device().type) return gradient;
  const Tensor here = Tensor::empty_like(gradient, MemoryKind::kGradients, exact_.host());
  wait_for_copy(here, gradient, stream);
  return here;
}

void DelayedUpdates::allocate(const Stream& stream) {
  for (ExactWeight& weight : exact_.all()) {
    const MemoryLabel label(weight.parameter->name());
    weight.gradients.allocate(weight.parameter->shape(), lag_, exact_.host(), stream);
  }
}

void DelayedUpdates::free_buffers() {
  for (ExactWeight& weight : exact_.all()) weight.gradients.free();
}

void DelayedUpdates::begin_lag(const std::vector<float>& rates, const Stream& stream) {
  if (is_delayed_) return;
  try {
    allocate(stream);
  } catch (const OutOfMemory&) {
    free_buffers();
    throw;
  }
  is_delayed_ = true;
  start(rates);
}

/// Starts counting steps at 0 and submits the first forecasts. Requires exact live weights.
void DelayedUpdates::start(const std::vector<float>& rates) {
  step_ = 0;
  pending_.clear();
  arrived_.assign(arrived_.size(), {});
  submit_first_forecasts(rates);
}

Tensor DelayedUpdates::gradient_on_device(const ExactWeight& weight, std::int64_t step,
                                          const PendingUpdate& one) const {
  if (step == step_) return one.finite ? weight.parameter->gradient() : Tensor{};
  return weight.gradients.on_device(step);
}

void DelayedUpdates::send(const DelayedStep& step, const Stream& stream) {
  for (ExactWeight& weight : exact_.all()) {
    const Tensor gradient = step.finite ? weight.parameter->gradient() : Tensor{};
    weight.gradients.send(gradient, step_, stream);
  }
  sent_.record(stream);
}

ArrivedUpdate DelayedUpdates::wait_for_delayed_step(const DelayedStep& step, const Stream& stream) {
  if (step.finite) ++steps_;
  ArrivedUpdate result;
  result.is_delayed = true;
  result.waited_seconds = wait_for_forecast();
  result.lag = static_cast<std::int64_t>(pending_.size());
  if (result.waited_seconds > 0) ++use_.waits;
  use_.wait_seconds += result.waited_seconds;
  Arrived& arrived = arrived_[place(step_)];
  result.prediction_error = std::exchange(arrived.error, {});
  result.worst_weight = arrived.worst_weight;
  if (!step.finite && restarts_without_update()) {
    copy_exact_weights(stream);
    start(step.future_rates);
    return result;
  }
  pending_.push_back({step.finite, step.learning_rate, step.gradient_scale});
  if (pending_.size() > static_cast<std::size_t>(lag_)) pending_.pop_front();
  compose(stream);
  send(step, stream);
  submit_update(step);
  ++step_;
  return result;
}

void DelayedUpdates::copy_exact_weights(const Stream& stream) {
  worker_.wait_until_idle();
  for (ExactWeight& weight : exact_.all()) {
    const Tensor master = weight.storage->master_in_place();
    weight.live->refresh_from(
        StagedTensor(master, Use::kRead, stream, master.pool() != stream.pool()), stream,
        weight.first_row);
  }
}

void DelayedUpdates::wait_for_exact_weights(const Stream& stream) {
  if (!is_delayed_) return;
  copy_exact_weights(stream);
  for (ExactWeight& weight : exact_.all()) weight.gradients.free_on_device();
  is_delayed_ = false;
}

SpeculationUse DelayedUpdates::use() const {
  SpeculationUse use = use_;
  use.worker_seconds = worker_.seconds();
  return use;
}

/// Saves everything except the newest forecast, which follows from the exact state.
void DelayedUpdates::save_delayed(State& state) const {
  const bool is_under_way =
      is_delayed_ && step_ > 0;  // otherwise begin_lag() rebuilds the same state
  state.integers["speculation.late"] = is_under_way ? 1 : 0;
  if (!is_under_way) return;
  state.integers["speculation.step"] = step_;
  std::vector<double> pending, errors;
  for (const PendingUpdate& one : pending_) {
    pending.insert(pending.end(), {one.finite ? 1.0 : 0.0, static_cast<double>(one.learning_rate),
                                   static_cast<double>(one.scale)});
  }
  for (std::size_t i = 0; i < arrived_.size(); ++i) {
    errors.push_back(arrived_[i].error.value_or(std::numeric_limits<double>::quiet_NaN()));
    state.texts[concat("speculation.worst.", i)] = arrived_[i].worst_weight;
  }
  state.series["speculation.flying"] = pending;
  state.series["speculation.errors"] = errors;
  for (const ExactWeight& weight : exact_.all()) {
    state.tensors["speculation.live." + weight.exact->name()] = weight.of(weight.live->live());
    weight.gradients.save(state, weight.exact->name(), step_);
  }
}

bool DelayedUpdates::is_saved(const State& state) {
  return state.integers.contains("speculation.late") && state.integer("speculation.late") != 0;
}

void DelayedUpdates::load_delayed(const State& state, const std::vector<float>& rates,
                                  const Stream& stream) {
  if (!is_saved(state)) return;
  allocate(stream);
  is_delayed_ = true;
  step_ = state.integer("speculation.step");
  pending_.clear();
  const std::vector<double>& pending = state.reals_of("speculation.flying");
  for (std::size_t i = 0; i + 2 < pending.size(); i += 3)
    pending_.push_back(
        {pending[i] != 0, static_cast<float>(pending[i + 1]), static_cast<float>(pending[i + 2])});
  const std::vector<double>& errors = state.reals_of("speculation.errors");
  for (std::size_t i = 0; i < arrived_.size() && i < errors.size(); ++i) {
    arrived_[i] = {{}, state.text(concat("speculation.worst.", i))};
    if (!std::isnan(errors[i])) arrived_[i].error = errors[i];
  }
  for (ExactWeight& weight : exact_.all()) {
    wait_and_take(weight.of(weight.live->live()), state, "speculation.live." + weight.exact->name(),
                  stream);
    weight.live->set_exact(false);
    weight.gradients.wait_and_load(state, weight.exact->name(), step_, exact_.host(), stream);
  }
  submit_last_forecast(rates);
}

}  // namespace hybrid_trainer
