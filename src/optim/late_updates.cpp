#include "late_updates.h"

#include <algorithm>
#include <cmath>
#include <limits>

#include "hybrid_trainer/core/error.h"
#include "hybrid_trainer/kernels/elementwise.h"
#include "hybrid_trainer/kernels/reductions.h"
#include "hybrid_trainer/optim/make_optimizer.h"
#include "optimizer_groups.h"

namespace hybrid_trainer {
namespace {

/// ‖x − y‖², x is overwritten.
double wait_for_distance(const Tensor& x, const Tensor& y, const Stream& stream) {
  kernels::axpy(x, x, -1, y, stream);
  return kernels::wait_for_sum_of_squares(x, stream);
}

/// The state's tensors of each weight, by their names.
void assign_state(Optimizer& optimizer, std::vector<ExactWeight>& weights) {
  optimizer.visit_state([&](const std::string& name, Tensor& tensor) {
    for (ExactWeight& weight : weights) {
      const std::string prefix = weight.parameter->name() + ".";
      if (!name.starts_with(prefix)) continue;
      const std::string part = name.substr(prefix.size());
      if (part != "m" && part != "v") continue;
      weight.state.push_back(&tensor);
      (part == "m" ? weight.m : weight.v) = &tensor;
    }
  });
}

}  // namespace

LateUpdates::LateUpdates(const OptimizerConfig& config, const std::vector<Parameter*>& parameters,
                         const SpeculationSettings& settings, const Stream& device,
                         const std::shared_ptr<MemoryPool>& host, const Stream& home)
    : lag_(settings.lag),
      host_(host),
      queue_(home.pool() != host ? std::make_unique<StateQueue>() : nullptr),
      weights_(parameters.size()),
      forecasts_(settings.device_side == "selective" ? 0 : static_cast<std::size_t>(settings.lag)),
      arrived_(static_cast<std::size_t>(settings.lag)),
      worker_(settings.worker_threads, !device.device().simulated) {
  std::vector<Parameter*> exact;
  for (std::size_t i = 0; i < parameters.size(); ++i) {
    ExactWeight& weight = weights_[i];
    Parameter& parameter = *parameters[i];
    const MemoryLabel label(parameter.name());
    const Tensor before = parameter.home_master();
    const Tensor master = Tensor::empty_like(before, MemoryKind::kMasterWeights, home);
    wait_for_copy(master, before, device);
    auto live = std::make_unique<LiveWeight>(master, device);
    auto storage = std::make_unique<ExactStorage>(master, *live);
    weight.parameter = &parameter;
    weight.live = live.get();
    weight.storage = storage.get();
    weight.exact = std::make_unique<Parameter>(parameter.name(), parameter.shape(),
                                               parameter.role(), std::move(storage));
    weight.exact->set_blocks(parameter.blocks());
    device.synchronize();  // before the old memory goes
    parameter.set_storage(std::move(live));
    exact.push_back(weight.exact.get());
  }
  exact_ = make_optimizer(config, exact, host_, home);
  assign_state(*exact_, weights_);
  add_groups(config, settings.device_side);
}

void LateUpdates::add_groups(const OptimizerConfig& config, const std::string& device_side) {
  std::vector<Parameter*> all;
  for (const ExactWeight& weight : weights_) all.push_back(weight.parameter);
  for (const OptimizerGroup& group : optimizer_groups(config, all)) {
    std::vector<Parameter*> members;
    for (const std::size_t member : group.members) {
      members.push_back(all[member]);
      weights_[member].group = groups_.size();
      weights_[member].rate_factor = rate_factor_of(group.config, config);
    }
    groups_.push_back({make_update_predictor(group.config, device_side, members),
                       make_update_predictor(group.config, device_side, members)});
  }
}

void LateUpdates::begin_step_now() {
  exact_->begin_step(host_);
  if (queue_) queue_->begin_update();
}

void LateUpdates::end_step_now() {
  if (queue_) queue_->end_update();
  exact_->end_step(host_);
}

void LateUpdates::update_now(std::size_t index, float learning_rate, float gradient_scale,
                             const Stream& stream) {
  ExactWeight& weight = weights_[index];
  Tensor gradient = weight.parameter->gradient();
  if (!gradient) return;
  if (gradient.device().type != host_.device().type) {
    const Tensor here = Tensor::empty_like(gradient, MemoryKind::kGradients, host_);
    wait_for_copy(here, gradient, stream);
    gradient = here;
  }
  given_.give(*weight.exact, gradient);
  const AtHand here(weight, queue_.get(), host_);
  exact_->update_weight(index, learning_rate, gradient_scale, host_);
  weight.live->refresh_from(here.master(), stream);
  if (queue_) stream.synchronize();  // before what is at hand goes
}

void LateUpdates::allocate(const Stream& stream) {
  for (ExactWeight& weight : weights_) {
    const MemoryLabel label(weight.parameter->name());
    while (weight.forecasts.size() < forecasts_)
      weight.forecasts.push_back(
          groups_[weight.group].on_host->empty_forecast(*weight.exact, host_));
    const auto gradient = [&](const Stream& where) {
      return Tensor::empty(weight.parameter->shape(), DType::kF32, MemoryKind::kGradients, where);
    };
    while (weight.sent.size() < static_cast<std::size_t>(2 * lag_ - 1))
      weight.sent.push_back(gradient(host_));
    weight.has_sent.resize(weight.sent.size(), 0);
    while (weight.flying.size() < static_cast<std::size_t>(lag_ - 1))
      weight.flying.push_back(gradient(stream));
  }
}

void LateUpdates::begin(const std::vector<float>& rates, const Stream& stream) {
  if (is_late_) return;
  try {
    allocate(stream);
  } catch (const OutOfMemory&) {
    free_buffers();
    throw;
  }
  is_late_ = true;
  step_ = 0;
  flying_.clear();
  arrived_.assign(arrived_.size(), {});
  submit_first_forecasts(rates);
}

void LateUpdates::free_buffers() {
  for (ExactWeight& weight : weights_) {
    weight.forecasts.clear();
    weight.sent.clear();
    weight.flying.clear();
  }
}

void LateUpdates::submit_first_forecasts(const std::vector<float>& rates) {
  first_job_ = worker_.submitted();
  for (std::int64_t i = 0; i < lag_; ++i)
    submit_forecast(place(i), {rates.begin(), rates.begin() + i + 1});
}

void LateUpdates::submit_last_forecast(const std::vector<float>& rates) {
  first_job_ = worker_.submitted() - (step_ - 1 + lag_);
  submit_forecast(place(step_ - 1), rates);
}

void LateUpdates::submit_forecast(std::size_t at, std::vector<float> rates) {
  worker_.submit([this, at, rates = std::move(rates)] {
    for_weights_at_hand(
        [&](ExactWeight& weight, const AtHand& here) { write_forecast(weight, at, rates, here); });
  });
}

void LateUpdates::write_forecast(ExactWeight& weight, std::size_t at, std::span<const float> rates,
                                 const AtHand& here) {
  std::vector<float> own(rates.begin(), rates.end());
  for (float& rate : own) rate = static_cast<float>(weight.rate_factor * static_cast<double>(rate));
  UpdateForecast& forecast = weight.forecasts[at];
  forecast.steps = exact_->steps_taken();
  groups_[weight.group].on_host->write_forecast(
      forecast,
      {*weight.exact, here.master(), *weight.m, weight.v == nullptr ? Tensor{} : *weight.v,
       forecast.steps},
      own, host_);
}

Tensor LateUpdates::gradient_sent(const ExactWeight& weight, std::int64_t step) const {
  const std::size_t at = sent_place(step);
  return weight.has_sent[at] != 0 ? weight.sent[at] : Tensor{};
}

Tensor LateUpdates::gradient_here(const ExactWeight& weight, std::int64_t step,
                                  const Flying& one) const {
  if (step == step_) return one.finite ? weight.parameter->gradient() : Tensor{};
  if (!gradient_sent(weight, step)) return {};
  return weight.flying[static_cast<std::size_t>(step % (lag_ - 1))];
}

std::vector<kernels::GradientInFlight> LateUpdates::in_flight(const ExactWeight& weight,
                                                              std::int64_t last,
                                                              const std::deque<Flying>& flying,
                                                              bool on_device) const {
  std::vector<kernels::GradientInFlight> gradients;
  const auto count = static_cast<std::int64_t>(flying.size());
  for (std::int64_t i = 0; i < count; ++i) {
    const std::int64_t step = last - count + 1 + i;
    const Flying& one = flying[static_cast<std::size_t>(i)];
    const Tensor gradient =
        on_device ? gradient_here(weight, step, one) : gradient_sent(weight, step);
    if (!gradient) continue;
    const double rate = weight.rate_factor * static_cast<double>(one.learning_rate);
    gradients.push_back({gradient, {}, {}, one.scale, static_cast<float>(rate)});
  }
  return gradients;
}

void LateUpdates::compose(const Stream& stream) {
  for (ExactWeight& weight : weights_) {
    const MemoryLabel label(weight.parameter->name());
    const auto gradients = in_flight(weight, step_, flying_, true);
    groups_[weight.group].on_device->compose(weight.live->live(), *weight.parameter,
                                             weight.forecasts[place(step_)], gradients, stream);
    weight.live->set_exact(false);
  }
}

void LateUpdates::send(const LateStep& step, const Stream& stream) {
  for (ExactWeight& weight : weights_) {
    const Tensor gradient = weight.parameter->gradient();
    const bool goes = gradient && step.finite;
    weight.has_sent[sent_place(step_)] = goes ? 1 : 0;
    if (!goes) continue;
    copy_or_wait(weight.sent[sent_place(step_)], gradient, stream);
    if (lag_ > 1)
      copy_or_wait(weight.flying[static_cast<std::size_t>(step_ % (lag_ - 1))], gradient, stream);
  }
  sent_.record(stream);
}

ArrivedUpdate LateUpdates::wait_for_step(const LateStep& step, const Stream& stream) {
  ArrivedUpdate result;
  result.waited_seconds = wait_for_forecast();
  result.lag = static_cast<std::int64_t>(flying_.size());
  if (result.waited_seconds > 0) ++use_.waits;
  use_.wait_seconds += result.waited_seconds;
  Arrived& arrived = arrived_[place(step_)];
  result.prediction_error = std::exchange(arrived.error, {});
  result.worst_weight = arrived.worst_weight;
  flying_.push_back({step.finite, step.learning_rate, step.gradient_scale});
  if (flying_.size() > static_cast<std::size_t>(lag_)) flying_.pop_front();
  compose(stream);
  send(step, stream);
  submit_update(step);
  ++step_;
  return result;
}

double LateUpdates::wait_for_forecast() { return worker_.wait_until_done(first_job_ + step_ + 1); }

void LateUpdates::submit_update(const LateStep& step) {
  worker_.submit([this, at = step_, step, flying = flying_] { update_late(at, step, flying); });
}

/// The exact update by the gradient of that step, how far its prediction was off, and the forecast
/// for the step L later, one weight after the other.
void LateUpdates::update_late(std::int64_t step, const LateStep& given,
                              const std::deque<Flying>& flying) {
  sent_.synchronize();  // and whatever read the forecast that is written anew
  if (given.finite) exact_->begin_step(host_);
  double missed = 0, moved = 0, worst = 0;
  Arrived& arrived = arrived_[place(step)];
  arrived = {};
  for_weights_at_hand([&](ExactWeight& weight, const AtHand& here) {
    if (given.finite) {
      given_.give(*weight.exact, gradient_sent(weight, step));
      exact_->update_weight(index_of(weight), given.learning_rate, given.gradient_scale, host_);
      const Tensor guess =
          Tensor::empty(weight.parameter->shape(), DType::kF32, MemoryKind::kWorkspace, host_);
      const UpdateForecast& forecast = weight.forecasts[place(step)];
      groups_[weight.group].on_host->compose(guess, *weight.exact, forecast,
                                             in_flight(weight, step, flying, false), host_);
      const double off = wait_for_distance(guess, here.master(), host_);
      const double size = wait_for_distance(forecast.exact, here.master(), host_);
      missed += off;
      moved += size;
      if (off > worst * size) {
        worst = size > 0 ? off / size : std::numeric_limits<double>::infinity();
        arrived.worst_weight = weight.parameter->name();
      }
    }
    write_forecast(weight, place(step), given.rates_to_come, here);
  });
  if (!given.finite) return;
  exact_->end_step(host_);
  if (missed == 0) {
    arrived.error = 0;
  } else {
    const bool known = moved > 0 && std::isfinite(missed);
    arrived.error = known ? std::sqrt(missed / moved) : std::numeric_limits<double>::infinity();
  }
}

void LateUpdates::wait_for_exact_weights(const Stream& stream) {
  if (!is_late_) return;
  worker_.wait_until_idle();
  for (ExactWeight& weight : weights_) {
    weight.parameter->refresh_compute_copy(stream);
    weight.flying.clear();
  }
  for (const Group& group : groups_) group.on_device->free_workspace();
  is_late_ = false;
}

SpeculationUse LateUpdates::use() const {
  SpeculationUse use = use_;
  use.worker_seconds = worker_.seconds();
  return use;
}

}  // namespace hybrid_trainer
