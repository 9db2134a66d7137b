#include "src/optim/forecast_updates.h"

#include "hybrid_trainer/core/error.h"
#include "src/optim/optimizer_groups.h"

namespace hybrid_trainer {
namespace {

/// Calls visit(forecast, key) for all but the newest, which follows from the exact state.
template <class Weights, class Visitor>
void visit_kept_forecasts(Weights& weights, std::size_t newest, const Visitor& visit) {
  for (auto& weight : weights) {
    for (std::size_t at = 0; at < weight.forecasts.size(); ++at) {
      if (at == newest) continue;
      visit(weight.forecasts[at], concat("speculation.forecast.", at, ".", weight.exact->name()));
    }
  }
}

}  // namespace

ForecastUpdates::ForecastUpdates(const OptimizerConfig& config,
                                 const std::vector<Parameter*>& parameters,
                                 const SpeculationSettings& settings, const Stream& device,
                                 const std::shared_ptr<MemoryPool>& host, const Stream& home)
    : LateUpdates(config, parameters, settings, device, host, home) {
  add_groups(config, settings.device_side);
}

void ForecastUpdates::add_groups(const OptimizerConfig& config, const std::string& device_side) {
  std::vector<Parameter*> all;
  for (const ExactWeight& weight : exact_.all()) all.push_back(weight.exact.get());
  for (const OptimizerGroup& group : optimizer_groups(config, all)) {
    std::vector<Parameter*> members;
    for (const std::size_t member : group.members) {
      members.push_back(all[member]);
      exact_.all()[member].group = groups_.size();
      exact_.all()[member].rate_factor = rate_factor_of(group.config, config);
    }
    groups_.push_back({make_update_predictor(group.config, device_side, members),
                       make_update_predictor(group.config, device_side, members)});
  }
}

void ForecastUpdates::allocate(const Stream& stream) {
  for (ExactWeight& weight : exact_.all()) {
    const MemoryLabel label(weight.parameter->name());
    while (std::ssize(weight.forecasts) < lag_)
      weight.forecasts.push_back(on_host(weight).empty_forecast(*weight.exact, exact_.host()));
  }
  LateUpdates::allocate(stream);
}

void ForecastUpdates::free_buffers() {
  LateUpdates::free_buffers();
  for (ExactWeight& weight : exact_.all()) weight.forecasts.clear();
}

void ForecastUpdates::submit_first_forecasts(const std::vector<float>& rates) {
  first_job_ = worker_.submitted();
  for (std::int64_t i = 0; i < lag_; ++i)
    submit_forecast(place(i), {rates.begin(), rates.begin() + i + 1});
}

void ForecastUpdates::submit_last_forecast(const std::vector<float>& rates) {
  first_job_ = worker_.submitted() - (step_ - 1 + lag_);
  submit_forecast(place(step_ - 1), rates);
}

void ForecastUpdates::submit_forecast(std::size_t at, std::vector<float> rates) {
  worker_.submit([this, at, rates = std::move(rates)] {
    exact_.for_each_at_hand(
        [&](ExactWeight& weight, const AtHand& here) { write_forecast(weight, at, rates, here); });
  });
}

void ForecastUpdates::write_forecast(ExactWeight& weight, std::size_t at,
                                     std::span<const float> rates, const AtHand& here) {
  UpdateForecast& forecast = weight.forecasts[at];
  forecast.steps = exact_.optimizer().steps_taken();
  on_host(weight).write_forecast(forecast, state_of(weight, here, forecast.steps),
                                 rates_of(weight, rates), exact_.host());
}

ExactWeightState ForecastUpdates::state_of(const ExactWeight& weight, const AtHand& here,
                                           std::int64_t steps) {
  return {*weight.exact, here.master(), *weight.m, weight.v == nullptr ? Tensor{} : *weight.v,
          steps};
}

std::vector<float> ForecastUpdates::rates_of(const ExactWeight& weight,
                                             std::span<const float> rates) const {
  std::vector<float> own(rates.begin(), rates.end());
  for (float& rate : own) rate = static_cast<float>(weight.rate_factor * static_cast<double>(rate));
  return own;
}

std::vector<kernels::GradientInFlight> ForecastUpdates::in_flight(const ExactWeight& weight,
                                                                  std::int64_t last,
                                                                  const std::deque<Flying>& flying,
                                                                  bool on_device) const {
  std::vector<kernels::GradientInFlight> gradients;
  const auto count = static_cast<std::int64_t>(flying.size());
  for (std::int64_t i = 0; i < count; ++i) {
    const std::int64_t step = last - count + 1 + i;
    const Flying& one = flying[static_cast<std::size_t>(i)];
    const Tensor gradient =
        on_device ? gradient_here(weight, step, one) : weight.gradients.on_host(step);
    if (!gradient) continue;
    const double rate = weight.rate_factor * static_cast<double>(one.learning_rate);
    gradients.push_back({gradient, {}, {}, one.scale, static_cast<float>(rate)});
  }
  return gradients;
}

void ForecastUpdates::compose(const Stream& stream) {
  for (ExactWeight& weight : exact_.all()) {
    const MemoryLabel label(weight.parameter->name());
    const auto gradients = in_flight(weight, step_, flying_, true);
    on_device(weight).compose(weight.live->live(), *weight.parameter,
                              weight.forecasts[place(step_)], gradients, stream);
    weight.live->set_exact(false);
  }
}

double ForecastUpdates::wait_for_forecast() {
  return worker_.wait_until_done(first_job_ + step_ + 1);
}

void ForecastUpdates::submit_update(const LateStep& step) {
  worker_.submit([this, at = step_, step, flying = flying_] { update_late(at, step, flying); });
}

/// One weight after the other.
void ForecastUpdates::update_late(std::int64_t step, const LateStep& given,
                                  const std::deque<Flying>& flying) {
  sent_.synchronize();  // and whatever read the forecast that is written anew
  PredictionMiss miss;
  exact_.update_each([&](ExactWeight& weight, const AtHand& here) {
    update_weight_late(weight, here, step, given, flying, miss);
  });
  arrived_[place(step)] = {miss.error(), miss.worst_weight};
}

void ForecastUpdates::update_weight_late(ExactWeight& weight, const AtHand& here, std::int64_t step,
                                         const LateStep& given, const std::deque<Flying>& flying,
                                         PredictionMiss& miss) {
  const Stream& host = exact_.host();
  exact_.update(weight, weight.gradients.on_host(step), given.learning_rate, given.gradient_scale);
  const Tensor guess =
      Tensor::empty(weight.parameter->shape(), DType::kF32, MemoryKind::kWorkspace, host);
  const UpdateForecast& forecast = weight.forecasts[place(step)];
  on_host(weight).compose(guess, *weight.exact, forecast, in_flight(weight, step, flying, false),
                          host);
  miss.wait_and_add(weight, guess, forecast.exact, here.master(), host);
  write_forecast(weight, place(step), given.rates_to_come, here);
}

void ForecastUpdates::wait_for_exact_weights(const Stream& stream) {
  LateUpdates::wait_for_exact_weights(stream);
  for (const Group& group : groups_) group.on_device->free_workspace();
}

void ForecastUpdates::save(State& state) const {
  LateUpdates::save(state);
  if (!is_saved(state)) return;
  visit_kept_forecasts(exact_.all(), place(step_ - 1),
                       [&](UpdateForecast forecast, const std::string& key) {
                         state.integers[key + ".steps"] = forecast.steps;
                         forecast.visit_tensors([&](const char* part, const Tensor& tensor) {
                           if (tensor) state.tensors[concat(key, ".", part)] = tensor;
                         });
                       });
}

void ForecastUpdates::load(const State& state, const std::vector<float>& rates,
                           const Stream& stream) {
  if (!is_saved(state)) return;
  allocate(stream);
  const std::int64_t step = state.integer("speculation.step");
  visit_kept_forecasts(exact_.all(), place(step - 1),
                       [&](UpdateForecast& forecast, const std::string& key) {
                         forecast.steps = state.integer(key + ".steps");
                         forecast.visit_tensors([&](const char* part, const Tensor& tensor) {
                           if (tensor)
                             wait_and_take(tensor, state, concat(key, ".", part), exact_.host());
                         });
                       });
  LateUpdates::load(state, rates, stream);
}

}  // namespace hybrid_trainer
