#include "src/optim/update_predictor.h"

#include "src/optim/optimizer_kinds.h"

namespace hybrid_trainer {

namespace {

/// Does not predict updates: live weights are the last exact weights.
class LatePredictor : public UpdatePredictor {
 public:
  void write_forecast(const UpdateForecast& forecast, const ExactWeightState& state,
                      std::span<const float>, const Stream& stream) override {
    copy_or_wait(forecast.base, state.master, stream);
  }
  void compose(const Tensor& live, const Parameter&, const UpdateForecast& forecast,
               std::span<const kernels::GradientInFlight>, const Stream& stream) override {
    kernels::cast(live, StagedTensor(forecast.base, Use::kRead, stream), stream);
  }
};

}  // namespace

UpdateForecast UpdatePredictor::empty_forecast(const Parameter& parameter,
                                               const Stream& stream) const {
  UpdateForecast forecast;
  forecast.exact = forecast.base = empty_part(parameter.shape(), stream);
  return forecast;
}

std::unique_ptr<UpdatePredictor> make_update_predictor(const OptimizerConfig& config,
                                                       const std::string& device_side,
                                                       const std::vector<Parameter*>& parameters,
                                                       double missing) {
  if (device_side != "anticipated" && device_side != "sketch")
    return std::make_unique<LatePredictor>();
  const OptimizerKind& kind = named_row(optimizer_kinds(), "optimizer.name", config.name);
  if (kind.predictor == nullptr)
    throw ConfigError(
        {choice_problem("optimizer.name", config.name, predictable_optimizer_names())});
  return kind.predictor({config, parameters, device_side == "sketch", missing});
}

}  // namespace hybrid_trainer
