#include <cmath>

#include "src/optim/adamw.h"
#include "src/optim/forecast_parts.h"

namespace hybrid_trainer {
namespace {

void add_factors(UpdateForecast& forecast, const Parameter& parameter, const Stream& stream) {
  const std::int64_t columns = parameter.shape()[parameter.shape().rank() - 1];
  forecast.rows = empty_part({parameter.elements() / columns}, stream);
  forecast.columns = empty_part({columns}, stream);
}

/// AdamW's. Anticipated: base has the part that the momentum makes of each update to come, with the
/// second moment as it is; the gradients in flight make the rest, with it factored by rows and
/// columns. Sketched: base is the exact weight, and the whole rule runs from 8-bit momentum.
class AdamWPredictor : public UpdatePredictor {
 public:
  explicit AdamWPredictor(const PredictedUpdates& updates)
      : config_(updates.config), sketches_(updates.sketches), missing_(updates.missing) {}

  UpdateForecast empty_forecast(const Parameter& parameter, const Stream& stream) const override {
    UpdateForecast forecast = UpdatePredictor::empty_forecast(parameter, stream);
    add_factors(forecast, parameter, stream);
    if (sketches_) {
      add_codes(forecast, parameter, stream);
    } else {
      forecast.base = empty_part(parameter.shape(), stream);
    }
    return forecast;
  }

  void write_forecast(const UpdateForecast& forecast, const ExactWeightState& state,
                      std::span<const float> rates, const Stream& stream) override {
    kernels::row_and_column_means(forecast.rows, forecast.columns, state.v, 1, false, stream);
    if (forecast.exact) copy_or_wait(forecast.exact, state.master, stream);
    if (sketches_) {
      write_codes(forecast, state.m, stream);
      return;
    }
    const double decay = decay_of(state.parameter, config_.weight_decay);
    if (state.steps == 0) {
      kernels::scale(forecast.base, state.master, static_cast<float>(kept_of(rates, decay)),
                     stream);
      return;
    }
    kernels::AdamWSettings now = settings(state.parameter, state.steps);
    now.learning_rate = static_cast<float>(momentum_rate(state.steps, rates, decay));
    kernels::adamw_direction(forecast.base, state.m, state.v, now, stream);
    add_kept(forecast.base, state.master, kept_of(rates, decay), stream);
  }

  void compose(const Tensor& live, const Parameter& parameter, const UpdateForecast& forecast,
               std::span<const kernels::GradientInFlight> gradients,
               const Stream& stream) override {
    const StagedForecast here(forecast, stream);
    std::vector<kernels::GradientInFlight> given(gradients.begin(), gradients.end());
    if (!sketches_ && parameter.shape().rank() > 1) {
      for (kernels::GradientInFlight& flying : given) {
        UpdateForecast factors;
        add_factors(factors, parameter, stream);
        kernels::row_and_column_means(factors.rows, factors.columns, flying.gradient, flying.scale,
                                      true, stream);
        flying.rows = factors.rows;
        flying.columns = factors.columns;
      }
    }
    kernels::predicted_adamw(live, here.base, here.start(), here.rows, here.columns, given,
                             sketches_, settings(parameter, forecast.steps), stream);
  }

 private:
  kernels::AdamWSettings settings(const Parameter& parameter, std::int64_t steps) const {
    kernels::AdamWSettings settings;
    settings.beta1 = static_cast<float>(config_.betas[0]);
    settings.beta2 = static_cast<float>(config_.betas[1]);
    settings.epsilon = static_cast<float>(config_.epsilon);
    settings.weight_decay = decay_of(parameter, config_.weight_decay);
    settings.step = steps;
    return settings;
  }
  /// The rate at which one step with the moments of now moves as far as the momentum moves in the
  /// steps to come, i from 1: Σ lr_i·share_i/(1 − β1^(t+i))·(decays after i), times 1 − β1^t;
  /// share_i = β1^i and, of gradients of which the momentum m/(1 − β1^t) stands for a part that is
  /// missing, missing·(1 − β1^i)/(1 − β1^t).
  double momentum_rate(std::int64_t steps, std::span<const float> rates, double decay) const {
    const double beta = config_.betas[0];
    const double now = 1 - std::pow(beta, static_cast<double>(steps));
    double sum = 0, power = 1;
    for (std::size_t i = 0; i < rates.size(); ++i) {
      power *= beta;
      const double correction =
          1 - std::pow(beta, static_cast<double>(steps) + 1.0 + static_cast<double>(i));
      const double share = power + missing_ * (1 - power) / now;
      sum +=
          static_cast<double>(rates[i]) * share / correction * kept_of(rates.subspan(i + 1), decay);
    }
    return sum * now;
  }

  OptimizerConfig config_;
  bool sketches_;
  double missing_;
};

}  // namespace

std::unique_ptr<UpdatePredictor> make_adamw_predictor(const PredictedUpdates& updates) {
  return std::make_unique<AdamWPredictor>(updates);
}

}  // namespace hybrid_trainer
