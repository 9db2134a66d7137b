#include "src/optim/rounded_updates.h"

#include <algorithm>
#include <optional>

#include "hybrid_trainer/core/staged_tensor.h"
#include "hybrid_trainer/kernels/elementwise.h"

namespace hybrid_trainer {
namespace {

/// In f32 on the stream's device, wherever it lies.
Tensor widened(const Tensor& rounded, MemoryKind kind, const Stream& stream,
               Prefetcher* prefetcher = nullptr) {
  const bool elsewhere = rounded.pool() != stream.pool();
  const Tensor wide = Tensor::empty(rounded.shape(), DType::kF32, kind, stream);
  kernels::cast(wide, StagedTensor(rounded, Use::kRead, stream, elsewhere, prefetcher), stream);
  return wide;
}

Copies copies_of(const Stream& device) {
  return device.device().type == DeviceType::kCpu ? Copies::kBeside : Copies::kInStream;
}

}  // namespace

RoundedUpdates::RoundedUpdates(const OptimizerConfig& config,
                               const std::vector<Parameter*>& parameters,
                               const SpeculationSettings& settings, const Stream& device,
                               const std::shared_ptr<MemoryPool>& host, const Stream& home)
    : ForecastUpdates(config, parameters, settings, device, host, home),
      home_(home),
      bases_(copies_of(device)),
      gradients_(copies_of(device)) {
  require(settings.lag == 1, "gradients in bf16 are late by one step");
}

/// Of a forecast only what is small stays on the host.
void RoundedUpdates::allocate(const Stream&) {
  for (std::size_t i = on_its_way_.size(); i < exact_.all().size(); ++i) {
    ExactWeight& weight = exact_.all()[i];
    const MemoryLabel label(weight.exact->name());
    const auto at_home = [&](DType dtype) {
      return Tensor::empty(weight.exact->shape(), dtype, MemoryKind::kPredictor, home_);
    };
    UpdateForecast forecast = on_host(weight).empty_forecast(*weight.exact, exact_.host());
    forecast.exact = forecast.base = {};
    weight.forecasts.assign(1, forecast);
    const bool is_vector = weight.exact->role() == Role::kVector;
    on_its_way_.push_back({at_home(is_vector ? DType::kF32 : DType::kBF16), at_home(DType::kBF16)});
  }
}

void RoundedUpdates::free_buffers() {
  ForecastUpdates::free_buffers();
  on_its_way_.clear();
}

void RoundedUpdates::compose(const Stream& stream) {
  const Flying& now = flying_.back();
  const bool is_in_file = home_.pool() != exact_.host().pool();
  bases_.begin_pass();
  for (std::size_t i = 0; i < exact_.all().size(); ++i) {
    const ExactWeight& weight = exact_.all()[i];
    const MemoryLabel label(weight.exact->name());
    UpdateForecast forecast = weight.forecasts.front();
    forecast.exact = forecast.base = widened(on_its_way_[i].base, MemoryKind::kWorkspace, stream,
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

void RoundedUpdates::send(const LateStep&, const Stream& stream) {
  for (std::size_t i = 0; i < exact_.all().size(); ++i) {
    ExactWeight& weight = exact_.all()[i];
    const Tensor gradient = weight.parameter->gradient();
    on_its_way_[i].has_gradient = gradient ? true : false;
    if (!gradient) continue;
    if (weight.exact->role() == Role::kVector) {
      copy_or_wait(on_its_way_[i].gradient, weight.of(gradient), stream);
    } else {
      on_its_way_[i].write = gradients_.write(on_its_way_[i].gradient, weight.of(gradient), stream);
    }
  }
  sent_.record(stream);
}

Tensor RoundedUpdates::gradient_now(const ExactWeight& weight, const Stream& stream) {
  const Tensor gradient = weight.of(weight.parameter->gradient());
  const Tensor here = Tensor::empty_like(gradient, MemoryKind::kGradients, exact_.host());
  wait_for_copy(here, gradient, stream);
  return widened(here, MemoryKind::kGradients, exact_.host());
}

UpdateForecast RoundedUpdates::forecast_of(const ExactWeight& weight, std::int64_t steps,
                                           std::span<const float> rates, const AtHand& here,
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
                                    const AtHand& here) {
  UpdateForecast forecast =
      forecast_of(weight, exact_.optimizer().steps_taken(), rates, here, false);
  const Tensor rounded =
      Tensor::empty(weight.exact->shape(), DType::kBF16, MemoryKind::kWorkspace, exact_.host());
  kernels::cast(rounded, forecast.base, exact_.host());
  copy_or_wait(on_its_way_[exact_.index_of(weight)].base, rounded, exact_.host());
  forecast.exact = forecast.base = {};
  weight.forecasts.front() = forecast;
}

bool RoundedUpdates::measures(std::size_t index, std::int64_t step) const {
  constexpr std::size_t kShare = 8;
  const std::size_t every = std::clamp<std::size_t>(exact_.all().size() / kShare, 1, kShare);
  return (index + static_cast<std::size_t>(step)) % every == 0;
}

void RoundedUpdates::update_weight_late(ExactWeight& weight, const AtHand& here, std::int64_t step,
                                        const LateStep& given, const std::deque<Flying>&,
                                        PredictionMiss& miss) {
  const OnItsWay& sent = on_its_way_[exact_.index_of(weight)];
  Tensor gradient;
  if (sent.has_gradient) {
    gradients_.wait_for_write(sent.write);
    gradient = widened(sent.gradient, MemoryKind::kGradients, exact_.host());
  }
  std::optional<Guess> guess;
  if (measures(exact_.index_of(weight), step)) guess = guess_of(weight, gradient, given, here);
  exact_.update(weight, gradient, given.learning_rate, given.gradient_scale);
  if (guess)
    miss.wait_and_add(weight, guess->predicted, guess->before, here.master(), exact_.host());
  write_forecast(weight, 0, given.rates_to_come, here);
}

/// Of the weight that the update of that step leads to.
RoundedUpdates::Guess RoundedUpdates::guess_of(const ExactWeight& weight, const Tensor& gradient,
                                               const LateStep& given, const AtHand& here) {
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
