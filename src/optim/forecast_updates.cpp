
#include "hybrid_trainer/kernels/reductions.h"
#include "src/optim/delayed_updates.h"
#include "src/optim/make_optimizer.h"

namespace hybrid_trainer {

namespace {

constexpr double kInfinity = std::numeric_limits<double>::infinity();

/// Returns ‖x − y‖² and overwrites x.
double wait_for_distance(const Tensor& x, const Tensor& y, const Stream& stream) {
  kernels::axpy(x, x, -1, y, stream);
  return kernels::wait_for_sum_of_squares(x, stream);
}

/// Calls visit(forecast, key) for all but the newest forecast, which follows from the exact state.
template <class Weights, class Visitor>
void visit_kept_forecasts(Weights& weights, std::size_t newest, const Visitor& visit) {
  for (auto& weight : weights) {
    for (std::size_t at = 0; at < weight.forecasts.size(); ++at) {
      if (at == newest) continue;
      visit(weight.forecasts[at], concat("speculation.forecast.", at, ".", weight.exact->name()));
    }
  }
}

Tensor widened(const Tensor& rounded, MemoryKind kind, const Stream& stream,
               Prefetcher* prefetcher = nullptr) {
  const bool needs_copy = rounded.pool() != stream.pool();
  const Tensor wide = Tensor::empty(rounded.shape(), DType::kF32, kind, stream);
  kernels::cast(wide, StagedTensor(rounded, Use::kRead, stream, needs_copy, prefetcher), stream);
  return wide;
}

Copies copies_of(const Stream& device) {
  return device.device().type == DeviceType::kCpu ? Copies::kInBackground : Copies::kInStream;
}

}  // namespace

void PredictionMiss::wait_and_add(const ExactWeight& weight, const Tensor& predicted,
                                  const Tensor& before, const Tensor& after, const Stream& stream) {
  const double off = wait_for_distance(predicted, after, stream);
  const double size = wait_for_distance(before, after, stream);
  missed += off;
  moved += size;
  if (off <= worst * size) return;
  worst = size > 0 ? off / size : kInfinity;
  worst_weight = weight.parameter->name();
}

double PredictionMiss::error() const {
  if (missed == 0) return 0;
  const bool known = moved > 0 && std::isfinite(missed);
  return known ? std::sqrt(missed / moved) : kInfinity;
}

ForecastUpdates::ForecastUpdates(const SpeculationSetup& setup) : DelayedUpdates(setup) {
  add_groups(setup.config, setup.settings.device_side);
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
  DelayedUpdates::allocate(stream);
}

void ForecastUpdates::free_buffers() {
  DelayedUpdates::free_buffers();
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
    exact_.for_each_loaded([&](ExactWeight& weight, const LoadedWeight& here) {
      write_forecast(weight, at, rates, here);
    });
  });
}

void ForecastUpdates::write_forecast(ExactWeight& weight, std::size_t at,
                                     std::span<const float> rates, const LoadedWeight& here) {
  UpdateForecast& forecast = weight.forecasts[at];
  forecast.steps = exact_.optimizer().steps_taken();
  on_host(weight).write_forecast(forecast, state_of(weight, here, forecast.steps),
                                 rates_of(weight, rates), exact_.host());
}

ExactWeightState ForecastUpdates::state_of(const ExactWeight& weight, const LoadedWeight& here,
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

std::vector<kernels::GradientInFlight> ForecastUpdates::in_flight(
    const ExactWeight& weight, std::int64_t last, const std::deque<PendingUpdate>& pending,
    bool on_device) const {
  std::vector<kernels::GradientInFlight> gradients;
  const auto count = static_cast<std::int64_t>(pending.size());
  for (std::int64_t i = 0; i < count; ++i) {
    const std::int64_t step = last - count + 1 + i;
    const PendingUpdate& one = pending[static_cast<std::size_t>(i)];
    const Tensor gradient =
        on_device ? gradient_on_device(weight, step, one) : weight.gradients.on_host(step);
    if (!gradient) continue;
    const double rate = weight.rate_factor * static_cast<double>(one.learning_rate);
    gradients.push_back({gradient, {}, {}, one.scale, static_cast<float>(rate)});
  }
  return gradients;
}

void ForecastUpdates::compose(const Stream& stream) {
  for (ExactWeight& weight : exact_.all()) {
    const MemoryLabel label(weight.parameter->name());
    const auto gradients = in_flight(weight, step_, pending_, true);
    on_device(weight).compose(weight.live->live(), *weight.parameter,
                              weight.forecasts[place(step_)], gradients, stream);
    weight.live->set_exact(false);
  }
}

double ForecastUpdates::wait_for_forecast() {
  return worker_.wait_until_done(first_job_ + step_ + 1);
}

void ForecastUpdates::submit_update(const DelayedStep& step) {
  worker_.submit(
      [this, at = step_, step, pending = pending_] { update_delayed(at, step, pending); });
}

void ForecastUpdates::update_delayed(std::int64_t step, const DelayedStep& given,
                                     const std::deque<PendingUpdate>& pending) {
  sent_.synchronize();  // also waits for readers of the forecast that is overwritten
  PredictionMiss miss;
  exact_.update_each([&](ExactWeight& weight, const LoadedWeight& here) {
    update_weight_delayed(weight, here, step, given, pending, miss);
  });
  arrived_[place(step)] = {miss.error(), miss.worst_weight};
}

void ForecastUpdates::update_weight_delayed(ExactWeight& weight, const LoadedWeight& here,
                                            std::int64_t step, const DelayedStep& given,
                                            const std::deque<PendingUpdate>& pending,
                                            PredictionMiss& miss) {
  const Stream& host = exact_.host();
  exact_.update(weight, weight.gradients.on_host(step), given.learning_rate, given.gradient_scale);
  const Tensor estimate =
      Tensor::empty(weight.parameter->shape(), DType::kF32, MemoryKind::kWorkspace, host);
  const UpdateForecast& forecast = weight.forecasts[place(step)];
  on_host(weight).compose(estimate, *weight.exact, forecast,
                          in_flight(weight, step, pending, false), host);
  miss.wait_and_add(weight, estimate, forecast.exact, here.master(), host);
  write_forecast(weight, place(step), given.future_rates, here);
}

void ForecastUpdates::wait_for_exact_weights(const Stream& stream) {
  DelayedUpdates::wait_for_exact_weights(stream);
  for (const Group& group : groups_) group.on_device->free_workspace();
}

void ForecastUpdates::save_delayed(State& state) const {
  DelayedUpdates::save_delayed(state);
  if (!is_saved(state)) return;
  visit_kept_forecasts(exact_.all(), place(step_ - 1),
                       [&](UpdateForecast forecast, const std::string& key) {
                         state.integers[key + ".steps"] = forecast.steps;
                         forecast.visit_tensors([&](const char* part, const Tensor& tensor) {
                           if (tensor) state.tensors[concat(key, ".", part)] = tensor;
                         });
                       });
}

void ForecastUpdates::load_delayed(const State& state, const std::vector<float>& rates,
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
  DelayedUpdates::load_delayed(state, rates, stream);
}

RoundedUpdates::RoundedUpdates(const SpeculationSetup& setup)
    : ForecastUpdates(setup),
      home_(setup.home),
      bases_(copies_of(setup.device)),
      gradients_(copies_of(setup.device)) {
  require(lag_ == 1, "gradients in bf16 require a delay of one step");
}

/// Allocates the small parts of forecasts in host memory, and the other parts in the pool of home_.
void RoundedUpdates::allocate(const Stream&) {
  for (std::size_t i = in_transit_.size(); i < exact_.all().size(); ++i) {
    ExactWeight& weight = exact_.all()[i];
    const MemoryLabel label(weight.exact->name());
    const auto empty_at_home = [&](DType dtype) {
      return Tensor::empty(weight.exact->shape(), dtype, MemoryKind::kPredictor, home_);
    };
    UpdateForecast forecast = on_host(weight).empty_forecast(*weight.exact, exact_.host());
    forecast.exact = forecast.base = {};
    weight.forecasts.assign(1, forecast);
    const bool is_vector = weight.exact->role() == Role::kVector;
    in_transit_.push_back(
        {empty_at_home(is_vector ? DType::kF32 : DType::kBF16), empty_at_home(DType::kBF16)});
  }
}

void RoundedUpdates::free_buffers() {
  ForecastUpdates::free_buffers();
  in_transit_.clear();
}

void RoundedUpdates::compose(const Stream& stream) {
  const PendingUpdate& now = pending_.back();
  const bool is_in_file = home_.pool() != exact_.host().pool();
  bases_.begin_pass();
  for (std::size_t i = 0; i < exact_.all().size(); ++i) {
    const ExactWeight& weight = exact_.all()[i];
    const MemoryLabel label(weight.exact->name());
    UpdateForecast forecast = weight.forecasts.front();
    forecast.exact = forecast.base = widened(in_transit_[i].base, MemoryKind::kWorkspace, stream,
                                             is_in_file ? &bases_ : nullptr);
    std::vector<kernels::GradientInFlight> gradients;
    if (const Tensor gradient = weight.parameter->gradient(); gradient) {
      gradients.push_back({widened(weight.of(gradient), MemoryKind::kWorkspace, stream),
                           {},
                           {},
                           now.scale,
                           rates_of(weight, {&now.learning_rate, 1}).front()});
    }
    on_device(weight).compose(weight.of(weight.live->live()), *weight.exact, forecast, gradients,
                              stream);
    weight.live->set_exact(false);
  }
}

void RoundedUpdates::send(const DelayedStep&, const Stream& stream) {
  for (std::size_t i = 0; i < exact_.all().size(); ++i) {
    ExactWeight& weight = exact_.all()[i];
    const Tensor gradient = weight.parameter->gradient();
    in_transit_[i].has_gradient = gradient ? true : false;
    if (!gradient) continue;
    if (weight.exact->role() == Role::kVector) {
      copy_or_wait(in_transit_[i].gradient, weight.of(gradient), stream);
    } else {
      in_transit_[i].write = gradients_.write(in_transit_[i].gradient, weight.of(gradient), stream);
    }
  }
  sent_.record(stream);
}

Tensor RoundedUpdates::current_gradient(const ExactWeight& weight, const Stream& stream) {
  const Tensor gradient = weight.of(weight.parameter->gradient());
  const Tensor here = Tensor::empty_like(gradient, MemoryKind::kGradients, exact_.host());
  wait_for_copy(here, gradient, stream);
  return widened(here, MemoryKind::kGradients, exact_.host());
}

UpdateForecast RoundedUpdates::forecast_of(const ExactWeight& weight, std::int64_t steps,
                                           std::span<const float> rates, const LoadedWeight& here,
                                           bool keeps_exact) {
  UpdatePredictor& predictor = on_host(weight);
  UpdateForecast forecast = predictor.empty_forecast(*weight.exact, exact_.host());
  if (!keeps_exact && forecast.base.raw() != forecast.exact.raw()) forecast.exact = {};
  forecast.steps = steps;
  predictor.write_forecast(forecast, state_of(weight, here, steps), rates_of(weight, rates),
                           exact_.host());
  return forecast;
}

void RoundedUpdates::write_forecast(ExactWeight& weight, std::size_t, std::span<const float> rates,
                                    const LoadedWeight& here) {
  UpdateForecast forecast =
      forecast_of(weight, exact_.optimizer().steps_taken(), rates, here, false);
  const Tensor rounded =
      Tensor::empty(weight.exact->shape(), DType::kBF16, MemoryKind::kWorkspace, exact_.host());
  kernels::cast(rounded, forecast.base, exact_.host());
  copy_or_wait(in_transit_[exact_.index_of(weight)].base, rounded, exact_.host());
  forecast.exact = forecast.base = {};
  weight.forecasts.front() = forecast;
}

bool RoundedUpdates::measures(std::size_t index, std::int64_t step) const {
  constexpr std::size_t kShare = 8;
  const std::size_t every = std::clamp<std::size_t>(exact_.all().size() / kShare, 1, kShare);
  return (index + static_cast<std::size_t>(step)) % every == 0;
}

void RoundedUpdates::update_weight_delayed(ExactWeight& weight, const LoadedWeight& here,
                                           std::int64_t step, const DelayedStep& given,
                                           const std::deque<PendingUpdate>&, PredictionMiss& miss) {
  const InTransit& sent = in_transit_[exact_.index_of(weight)];
  Tensor gradient;
  if (sent.has_gradient) {
    gradients_.wait_for_write(sent.write);
    gradient = widened(sent.gradient, MemoryKind::kGradients, exact_.host());
  }
  std::optional<WeightEstimate> estimate;
  if (measures(exact_.index_of(weight), step))
    estimate = estimate_of(weight, gradient, given, here);
  exact_.update(weight, gradient, given.learning_rate, given.gradient_scale);
  if (estimate)
    miss.wait_and_add(weight, estimate->predicted, estimate->before, here.master(), exact_.host());
  write_forecast(weight, 0, given.future_rates, here);
}

/// Predicts the weight after the update of the current step.
RoundedUpdates::WeightEstimate RoundedUpdates::estimate_of(const ExactWeight& weight,
                                                           const Tensor& gradient,
                                                           const DelayedStep& given,
                                                           const LoadedWeight& here) {
  const std::span<const float> rates(&given.learning_rate, 1);
  std::vector<kernels::GradientInFlight> gradients;
  if (gradient)
    gradients.push_back({gradient, {}, {}, given.gradient_scale, rates_of(weight, rates).front()});
  const UpdateForecast forecast =
      forecast_of(weight, exact_.optimizer().steps_taken() - 1, rates, here, true);
  const Tensor predicted =
      Tensor::empty(weight.exact->shape(), DType::kF32, MemoryKind::kWorkspace, exact_.host());
  on_host(weight).compose(predicted, *weight.exact, forecast, gradients, exact_.host());
  return {predicted, forecast.exact};
}

}  // namespace hybrid_trainer
