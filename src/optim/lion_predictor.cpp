#include "src/optim/forecast_parts.h"
#include "src/optim/lion.h"

namespace hybrid_trainer {
namespace {

/// Lion's: a sign does not split into parts, so that the momentum itself goes to the device, in f32
/// or, sketched, in 8 bits.
class LionPredictor : public UpdatePredictor {
 public:
  explicit LionPredictor(const PredictedUpdates& updates)
      : config_(updates.config), sketches_(updates.sketches) {}

  UpdateForecast empty_forecast(const Parameter& parameter, const Stream& stream) const override {
    UpdateForecast forecast = UpdatePredictor::empty_forecast(parameter, stream);
    if (sketches_) {
      add_codes(forecast, parameter, stream);
    } else {
      forecast.momentum = empty_part(parameter.shape(), stream);
    }
    return forecast;
  }

  void write_forecast(const UpdateForecast& forecast, const ExactWeightState& state,
                      std::span<const float>, const Stream& stream) override {
    copy_or_wait(forecast.base, state.master, stream);
    if (sketches_) {
      write_codes(forecast, state.m, stream);
    } else {
      copy_or_wait(forecast.momentum, state.m, stream);
    }
  }

  void compose(const Tensor& live, const Parameter& parameter, const UpdateForecast& forecast,
               std::span<const kernels::GradientInFlight> gradients,
               const Stream& stream) override {
    const StagedForecast here(forecast, stream);
    const kernels::LionSettings settings{.beta1 = static_cast<float>(config_.betas[0]),
                                         .beta2 = static_cast<float>(config_.betas[1]),
                                         .weight_decay = decay_of(parameter, config_.weight_decay)};
    kernels::predicted_lion(live, here.base, here.start(), gradients, true, settings, stream);
  }

 private:
  OptimizerConfig config_;
  bool sketches_;
};

}  // namespace

std::unique_ptr<UpdatePredictor> make_lion_predictor(const PredictedUpdates& updates) {
  return std::make_unique<LionPredictor>(updates);
}

}  // namespace hybrid_trainer
