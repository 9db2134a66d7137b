#include "rounded_updates.h"

#include "hybrid_trainer/core/staged_tensor.h"
#include "hybrid_trainer/kernels/elementwise.h"

namespace hybrid_trainer {
namespace {

/// In f32 on the stream's device, wherever it lies.
Tensor widened(const Tensor& rounded, MemoryKind kind, const Stream& stream) {
  const Tensor wide = Tensor::empty(rounded.shape(), DType::kF32, kind, stream);
  kernels::cast(wide, StagedTensor(rounded, Use::kRead, stream, rounded.pool() != stream.pool()),
                stream);
  return wide;
}

}  // namespace

RoundedUpdates::RoundedUpdates(const OptimizerConfig& config,
                               const std::vector<Parameter*>& parameters,
                               const SpeculationSettings& settings, const Stream& device,
                               const std::shared_ptr<MemoryPool>& host, const Stream& home)
    : LateUpdates(config, parameters, settings, device, host, home), home_(home) {
  require(settings.lag == 1, "gradients in bf16 are late by one step");
}

/// Of a forecast only what is small stays on the host.
void RoundedUpdates::allocate(const Stream&) {
  for (std::size_t i = on_its_way_.size(); i < weights_.size(); ++i) {
    ExactWeight& weight = weights_[i];
    const MemoryLabel label(weight.exact->name());
    const auto at_home = [&](DType dtype) {
      return Tensor::empty(weight.exact->shape(), dtype, MemoryKind::kPredictor, home_);
    };
    UpdateForecast forecast = groups_[weight.group].on_host->empty_forecast(*weight.exact, host_);
    forecast.exact = forecast.base = {};
    weight.forecasts.assign(1, forecast);
    weight.has_sent.assign(1, 0);
    const bool is_vector = weight.exact->role() == Role::kVector;
    on_its_way_.push_back({at_home(is_vector ? DType::kF32 : DType::kBF16), at_home(DType::kBF16)});
  }
}

void RoundedUpdates::free_buffers() {
  LateUpdates::free_buffers();
  on_its_way_.clear();
}

void RoundedUpdates::compose(const Stream& stream) {
  const Flying& now = flying_.back();
  for (std::size_t i = 0; i < weights_.size(); ++i) {
    const ExactWeight& weight = weights_[i];
    const MemoryLabel label(weight.exact->name());
    UpdateForecast forecast = weight.forecasts.front();
    forecast.exact = forecast.base = widened(on_its_way_[i].base, MemoryKind::kWorkspace, stream);
    std::vector<kernels::GradientInFlight> gradients;
    if (const Tensor gradient = weight.parameter->gradient(); gradient && now.finite) {
      gradients.push_back({widened(weight.of(gradient), MemoryKind::kWorkspace, stream),
                           {},
                           {},
                           now.scale,
                           rates_of(weight, {&now.learning_rate, 1}).front()});
    }
    groups_[weight.group].on_device->compose(weight.of(weight.live->live()), *weight.exact,
                                             forecast, gradients, stream);
    weight.live->set_exact(false);
  }
}

void RoundedUpdates::send(const LateStep& step, const Stream& stream) {
  for (std::size_t i = 0; i < weights_.size(); ++i) {
    ExactWeight& weight = weights_[i];
    const Tensor gradient = weight.parameter->gradient();
    weight.has_sent.front() = gradient && step.finite ? 1 : 0;
    if (weight.has_sent.front() != 0)
      copy_or_wait(on_its_way_[i].gradient, weight.of(gradient), stream);
  }
  sent_.record(stream);
}

Tensor RoundedUpdates::gradient_now(const ExactWeight& weight, const Stream& stream) {
  const Tensor gradient = weight.of(weight.parameter->gradient());
  const Tensor here = Tensor::empty_like(gradient, MemoryKind::kGradients, host_);
  wait_for_copy(here, gradient, stream);
  return widened(here, MemoryKind::kGradients, host_);
}

UpdateForecast RoundedUpdates::forecast_of(const ExactWeight& weight, std::int64_t steps,
                                           std::span<const float> rates, const AtHand& here) {
  UpdatePredictor& predictor = *groups_[weight.group].on_host;
  UpdateForecast forecast = predictor.empty_forecast(*weight.exact, host_);
  forecast.steps = steps;
  const Tensor v = weight.v == nullptr ? Tensor{} : *weight.v;
  predictor.write_forecast(forecast, {*weight.exact, here.master(), *weight.m, v, steps},
                           rates_of(weight, rates), host_);
  return forecast;
}

void RoundedUpdates::write_forecast(ExactWeight& weight, std::size_t, std::span<const float> rates,
                                    const AtHand& here) {
  UpdateForecast forecast = forecast_of(weight, exact_->steps_taken(), rates, here);
  const Tensor rounded =
      Tensor::empty(weight.exact->shape(), DType::kBF16, MemoryKind::kWorkspace, host_);
  kernels::cast(rounded, forecast.base, host_);
  copy_or_wait(on_its_way_[index_of(weight)].base, rounded, host_);
  forecast.exact = forecast.base = {};
  weight.forecasts.front() = forecast;
}

void RoundedUpdates::update_weight_late(ExactWeight& weight, const AtHand& here, std::int64_t,
                                        const LateStep& given, const std::deque<Flying>&,
                                        PredictionMiss& miss) {
  if (given.finite) {
    Tensor gradient;
    std::vector<kernels::GradientInFlight> gradients;
    const std::vector<float> rate = rates_of(weight, {&given.learning_rate, 1});
    if (weight.has_sent.front() != 0) {
      gradient = widened(on_its_way_[index_of(weight)].gradient, MemoryKind::kGradients, host_);
      gradients.push_back({gradient, {}, {}, given.gradient_scale, rate.front()});
    }
    const UpdateForecast forecast =
        forecast_of(weight, exact_->steps_taken() - 1, {&given.learning_rate, 1}, here);
    const Tensor guess =
        Tensor::empty(weight.exact->shape(), DType::kF32, MemoryKind::kWorkspace, host_);
    groups_[weight.group].on_host->compose(guess, *weight.exact, forecast, gradients, host_);
    given_.give(*weight.exact, gradient);
    exact_->update_weight(index_of(weight), given.learning_rate, given.gradient_scale, host_);
    const double off = wait_for_distance(guess, here.master(), host_);
    miss.add(weight, off, wait_for_distance(forecast.exact, here.master(), host_));
  }
  write_forecast(weight, 0, given.rates_to_come, here);
}

}  // namespace hybrid_trainer
