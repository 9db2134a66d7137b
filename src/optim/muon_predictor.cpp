#include <map>
#include <optional>

#include "hybrid_trainer/kernels/reductions.h"
#include "src/optim/forecast_parts.h"
#include "src/optim/muon.h"

namespace hybrid_trainer {
namespace {

/// Muon's. Anticipated: base has the orthogonalised momentum of each update to come; the device adds
/// to first order what the gradients in flight change of it. Sketched: the device orthogonalises
/// momentum that came in 8 bits together with the gradients.
class MuonPredictor : public UpdatePredictor {
 public:
  explicit MuonPredictor(const PredictedUpdates& updates)
      : config_(updates.config), sketches_(updates.sketches), room_(updates.parameters) {}

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
               std::span<const kernels::GradientInFlight> gradients,
               const Stream& stream) override {
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
                      const StagedForecast& here,
                      std::span<const kernels::GradientInFlight> gradients, const Stream& stream) {
    const auto workspace = [&] {
      return Tensor::empty(parameter.shape(), DType::kF32, MemoryKind::kWorkspace, stream);
    };
    const Tensor weight = workspace(), m = workspace();
    kernels::cast(weight, here.base, stream);
    kernels::dequantize(m, here.momentum, here.scales, kernels::QuantizationMap::kSigned, stream);
    const float decay = decay_of(parameter, config_.weight_decay);
    for (const kernels::GradientInFlight& flying : gradients) {
      const Tensor u = input(parameter, stream);
      add_to_momentum(u, m, flying.gradient, config_, flying.scale, stream);
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

}  // namespace

std::unique_ptr<UpdatePredictor> make_muon_predictor(const PredictedUpdates& updates) {
  return std::make_unique<MuonPredictor>(updates);
}

}  // namespace hybrid_trainer
