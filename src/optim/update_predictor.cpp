#include "src/optim/update_predictor.h"

#include <array>
#include <cmath>
#include <map>
#include <optional>
#include <ranges>

#include "hybrid_trainer/core/error.h"
#include "hybrid_trainer/core/nearest_name.h"
#include "hybrid_trainer/kernels/elementwise.h"
#include "hybrid_trainer/kernels/quantization.h"
#include "hybrid_trainer/kernels/reductions.h"
#include "src/optim/muon.h"
#include "src/optim/optimizer_state.h"

namespace hybrid_trainer {
namespace {

using Gradients = std::span<const kernels::GradientInFlight>;

Tensor empty_part(const Shape& shape, const Stream& stream, DType dtype = DType::kF32) {
  return Tensor::empty(shape, dtype, MemoryKind::kPredictor, stream);
}

void add_factors(UpdateForecast& forecast, const Parameter& parameter, const Stream& stream) {
  const std::int64_t columns = parameter.shape()[parameter.shape().rank() - 1];
  forecast.rows = empty_part({parameter.elements() / columns}, stream);
  forecast.columns = empty_part({columns}, stream);
}

void add_codes(UpdateForecast& forecast, const Parameter& parameter, const Stream& stream) {
  forecast.momentum = empty_part(parameter.shape(), stream, DType::kU8);
  forecast.scales = empty_part({kernels::quantization_blocks(parameter.elements())}, stream);
}

void write_codes(const UpdateForecast& forecast, const Tensor& momentum, const Stream& stream) {
  kernels::quantize(forecast.momentum, forecast.scales, momentum, kernels::QuantizationMap::kSigned,
                    stream);
}

/// What is left of a weight after the decays of so many updates.
double kept_of(std::span<const float> rates, double decay) {
  double kept = 1;
  for (const float rate : rates) kept *= 1 - static_cast<double>(rate) * decay;
  return kept;
}

/// base = kept·master + base.
void add_kept(const Tensor& base, const Tensor& master, double kept, const Stream& stream) {
  kernels::axpy(base, base, static_cast<float>(kept), master, stream);
}

struct StagedForecast {
  StagedForecast(const UpdateForecast& forecast, const Stream& stream)
      : base(forecast.base, Use::kRead, stream),
        rows(forecast.rows, Use::kRead, stream),
        columns(forecast.columns, Use::kRead, stream),
        momentum(forecast.momentum, Use::kRead, stream),
        scales(forecast.scales, Use::kRead, stream),
        squares(forecast.squares, Use::kRead, stream) {}
  kernels::StartingMomentum start() const { return {momentum, scales}; }
  StagedTensor base, rows, columns, momentum, scales, squares;
};

/// Nothing is predicted: the last exact weights.
class LatePredictor : public UpdatePredictor {
 public:
  void write_forecast(const UpdateForecast& forecast, const ExactWeightState& state,
                      std::span<const float>, const Stream& stream) override {
    copy_or_wait(forecast.base, state.master, stream);
  }
  void compose(const Tensor& live, const Parameter&, const UpdateForecast& forecast, Gradients,
               const Stream& stream) override {
    kernels::cast(live, StagedTensor(forecast.base, Use::kRead, stream), stream);
  }
};

/// AdamW's. Anticipated: base has the part that the momentum makes of each update to come, with the
/// second moment as it is; the gradients in flight make the rest, with it factored by rows and
/// columns. Sketched: base is the exact weight, and the whole rule runs from 8-bit momentum.
class AdamWPredictor : public UpdatePredictor {
 public:
  AdamWPredictor(const OptimizerConfig& config, bool sketches, double missing)
      : config_(config), sketches_(sketches), missing_(missing) {}

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
               Gradients gradients, const Stream& stream) override {
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

/// Lion's: a sign does not split into parts, so that the momentum itself goes to the device, in f32
/// or, sketched, in 8 bits.
class LionPredictor : public UpdatePredictor {
 public:
  LionPredictor(const OptimizerConfig& config, bool sketches)
      : config_(config), sketches_(sketches) {}

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
               Gradients gradients, const Stream& stream) override {
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

/// Muon's. Anticipated: base has the orthogonalised momentum of each update to come; the device adds
/// to first order what the gradients in flight change of it. Sketched: the device orthogonalises
/// momentum that came in 8 bits together with the gradients.
class MuonPredictor : public UpdatePredictor {
 public:
  MuonPredictor(const OptimizerConfig& config, bool sketches,
                const std::vector<Parameter*>& parameters)
      : config_(config), sketches_(sketches), room_(parameters) {}

  UpdateForecast empty_forecast(const Parameter& parameter, const Stream& stream) const override {
    UpdateForecast forecast = UpdatePredictor::empty_forecast(parameter, stream);
    if (sketches_) {
      add_codes(forecast, parameter, stream);
    } else {
      forecast.base = empty_part(parameter.shape(), stream);
      forecast.squares = empty_part({1}, stream, DType::kF64);
    }
    return forecast;
  }

  void write_forecast(const UpdateForecast& forecast, const ExactWeightState& state,
                      std::span<const float> rates, const Stream& stream) override {
    if (forecast.exact) copy_or_wait(forecast.exact, state.master, stream);
    if (sketches_) return write_codes(forecast, state.m, stream);
    const double decay = decay_of(state.parameter, config_.weight_decay);
    const Shape& shape = state.parameter.shape();
    std::map<std::int64_t, double> rate_by_rows;  // that are orthogonalised together
    for (std::size_t i = 0; i < rates.size(); ++i) {
      const std::int64_t step = state.steps + 1 + static_cast<std::int64_t>(i);
      rate_by_rows[rows_together(config_, shape, step)] +=
          static_cast<double>(rates[i]) * kept_of(rates.subspan(i + 1), decay);
    }
    kernels::sum_of_squares(forecast.squares, {&state.m, 1}, stream);
    fill_zero(forecast.base, stream);
    // Orthogonalising takes no notice of a factor: the momentum of each update to come gives the same.
    for (const auto& [rows, rate] : rate_by_rows) {
      const Tensor u = input(state.parameter, stream);
      kernels::scale(u, state.m, 1, stream);
      kernels::axpy(forecast.base, forecast.base,
                    static_cast<float>(-rate) * update_scale({rows, shape[1]}),
                    orthogonal(u, rows, state.parameter, stream), stream);
    }
    add_kept(forecast.base, state.master, kept_of(rates, decay), stream);
  }

  void compose(const Tensor& live, const Parameter& parameter, const UpdateForecast& forecast,
               Gradients gradients, const Stream& stream) override {
    const StagedForecast here(forecast, stream);
    const auto momentum = static_cast<float>(config_.momentum);
    const float scale = update_scale(parameter.shape());
    const float decay = decay_of(parameter, config_.weight_decay);
    if (sketches_) {
      compose_sketch(live, parameter, forecast.steps, here, gradients, stream);
      return;
    }
    const auto count = std::max<std::int64_t>(1, static_cast<std::int64_t>(gradients.size()));
    const Tensor squares = Tensor::empty({count}, DType::kF64, MemoryKind::kWorkspace, stream);
    kernels::in_flight_squares(squares.rows(0, static_cast<std::int64_t>(gradients.size())),
                               gradients, momentum, stream);
    kernels::predicted_muon(live, here.base, here.squares,
                            squares.rows(0, static_cast<std::int64_t>(gradients.size())), gradients,
                            momentum, scale, decay, stream);
  }
  void free_workspace() override { orthogonalizer_.reset(); }

 private:
  void compose_sketch(const Tensor& live, const Parameter& parameter, std::int64_t steps,
                      const StagedForecast& here, Gradients gradients, const Stream& stream) {
    const auto workspace = [&] {
      return Tensor::empty(parameter.shape(), DType::kF32, MemoryKind::kWorkspace, stream);
    };
    const Tensor weight = workspace(), m = workspace();
    kernels::cast(weight, here.base, stream);
    kernels::dequantize(m, here.momentum, here.scales, kernels::QuantizationMap::kSigned, stream);
    const float decay = decay_of(parameter, config_.weight_decay);
    for (const kernels::GradientInFlight& flying : gradients) {
      const Tensor u = input(parameter, stream);
      kernels::muon_momentum(u, m, flying.gradient, static_cast<float>(config_.momentum),
                             flying.scale, stream);
      const Shape& shape = parameter.shape();
      const std::int64_t rows = rows_together(config_, shape, ++steps);
      kernels::decayed_step(weight, orthogonal(u, rows, parameter, stream), {},
                            flying.learning_rate * update_scale({rows, shape[1]}),
                            1 - flying.learning_rate * decay, stream);
    }
    kernels::cast(live, weight, stream);
  }
  Tensor input(const Parameter& parameter, const Stream& stream) {
    if (!orthogonalizer_) orthogonalizer_.emplace(orthogonalizer_for(room_, stream));
    return orthogonalizer_->input(parameter.shape()[0], parameter.shape()[1]);
  }
  Tensor orthogonal(const Tensor& u, std::int64_t rows, const Parameter& parameter,
                    const Stream& stream) {
    return orthogonalizer_->orthogonal_blocks(u, rows, products_of(parameter, stream), stream);
  }

  OptimizerConfig config_;
  bool sketches_;
  std::vector<Parameter*> room_;
  std::optional<Orthogonalizer> orthogonalizer_;  // from its first use on
};

using Parameters = std::vector<Parameter*>;
struct Row {
  const char* name;
  std::unique_ptr<UpdatePredictor> (*make)(const OptimizerConfig&, bool, const Parameters&, double);
};
constexpr std::array kPredictors{
    Row{"adamw",
        [](const OptimizerConfig& config, bool sketches, const Parameters&,
           double missing) -> std::unique_ptr<UpdatePredictor> {
          return std::make_unique<AdamWPredictor>(config, sketches, missing);
        }},
    Row{"lion",
        [](const OptimizerConfig& config, bool sketches, const Parameters&,
           double) -> std::unique_ptr<UpdatePredictor> {
          return std::make_unique<LionPredictor>(config, sketches);
        }},
    Row{"muon",
        [](const OptimizerConfig& config, bool sketches, const Parameters& parameters,
           double) -> std::unique_ptr<UpdatePredictor> {
          return std::make_unique<MuonPredictor>(config, sketches, parameters);
        }},
};

}  // namespace

UpdateForecast UpdatePredictor::empty_forecast(const Parameter& parameter,
                                               const Stream& stream) const {
  UpdateForecast forecast;
  forecast.exact = forecast.base = empty_part(parameter.shape(), stream);
  return forecast;
}

const std::vector<std::string>& predictable_optimizer_names() {
  static const std::vector<std::string> names = names_of(kPredictors);
  return names;
}

std::unique_ptr<UpdatePredictor> make_update_predictor(const OptimizerConfig& config,
                                                       const std::string& device_side,
                                                       const std::vector<Parameter*>& parameters,
                                                       double missing) {
  if (device_side != "anticipated" && device_side != "sketch")
    return std::make_unique<LatePredictor>();
  return named_row(kPredictors, "optimizer.name", config.name)
      .make(config, device_side == "sketch", parameters, missing);
}

}  // namespace hybrid_trainer
