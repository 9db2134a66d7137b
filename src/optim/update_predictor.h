#pragma once

#include "hybrid_trainer/core/tensor.h"
#include "hybrid_trainer/kernels/elementwise.h"
#include "hybrid_trainer/nn/parameter.h"
#include "hybrid_trainer/optim/optimizer_config.h"
#include "kernels/quantized/quantization.h"
#include "kernels/updates/predicted_update.h"

namespace hybrid_trainer {

/// What goes to the device for one weight after each exact update of it, from which live weights are
/// composed with the gradients in flight. What a rule does not use is undefined.
struct UpdateForecast {
  Tensor exact;             // f32: the weight; may be base; not written where undefined
  Tensor base;              // f32: the same with what is known of the updates to come
  Tensor rows, columns;     // means of the second moment
  Tensor momentum, scales;  // f32, or codes and their scales
  Tensor squares;           // (1) f64: squared norm of the momentum
  std::int64_t steps = 0;   // that the exact state has seen

  template <class Visitor>
  void visit_tensors(const Visitor& visit) {
    visit("exact", exact);
    if (base.raw() != exact.raw()) visit("base", base);
    visit("rows", rows);
    visit("columns", columns);
    visit("momentum", momentum);
    visit("scales", scales);
    visit("squares", squares);
  }
};

/// A weight with its exact state, all at hand.
struct ExactWeightState {
  const Parameter& parameter;
  const Tensor& master;
  const Tensor& m;
  Tensor v;  // undefined where the rule has none
  std::int64_t steps = 0;
};

/// How an optimizer's update that has not arrived is predicted from what its exact state says
/// beforehand and the gradients in flight.
class UpdatePredictor {
 public:
  virtual ~UpdatePredictor() = default;
  /// Memory for a forecast, not initialised.
  virtual UpdateForecast empty_forecast(const Parameter& parameter, const Stream& stream) const;
  /// Writes the forecast of as many updates as there are learning rates. On the stream of the exact
  /// state.
  virtual void write_forecast(const UpdateForecast& forecast, const ExactWeightState& state,
                              std::span<const float> rates, const Stream& stream) = 0;
  /// live (f32 or bf16) = the forecast's weights with the parts of the gradients in flight, oldest
  /// first. On any stream; tensors of the forecast that lie elsewhere are staged.
  virtual void compose(const Tensor& live, const Parameter& parameter,
                       const UpdateForecast& forecast,
                       std::span<const kernels::GradientInFlight> gradients,
                       const Stream& stream) = 0;
  /// Frees what compose keeps between its calls.
  virtual void free_workspace() {}
};

/// What a predictor is for: `parameters`, and the optimizer that updates them.
struct PredictedUpdates {
  const OptimizerConfig& config;
  const std::vector<Parameter*>& parameters;
  bool sketches = false;  // device_side, see make_update_predictor
  /// The gradients in flight lack this share of what they are sums of; the momentum stands for it.
  double missing = 0;
};

/// The predictor of `config.name`'s updates, by `device_side`: anticipated or sketch; another one
/// predicts nothing. `missing` is adamw's alone, as a factor changes nothing about muon's direction.
/// Throws ConfigError for an optimizer whose updates cannot be predicted.
std::unique_ptr<UpdatePredictor> make_update_predictor(const OptimizerConfig& config,
                                                       const std::string& device_side,
                                                       const std::vector<Parameter*>& parameters,
                                                       double missing = 0);

inline Tensor empty_part(const Shape& shape, const Stream& stream, DType dtype = DType::kF32) {
  return Tensor::empty(shape, dtype, MemoryKind::kPredictor, stream);
}

/// The momentum in 8 bits.
inline void add_codes(UpdateForecast& forecast, const Parameter& parameter, const Stream& stream) {
  forecast.momentum = empty_part(parameter.shape(), stream, DType::kU8);
  forecast.scales = empty_part({kernels::quantization_blocks(parameter.elements())}, stream);
}

inline void write_codes(const UpdateForecast& forecast, const Tensor& momentum,
                        const Stream& stream) {
  kernels::quantize(forecast.momentum, forecast.scales, momentum, kernels::QuantizationMap::kSigned,
                    stream);
}

/// What is left of a weight after the decays of so many updates.
inline double kept_of(std::span<const float> rates, double decay) {
  double kept = 1;
  for (const float rate : rates) kept *= 1 - static_cast<double>(rate) * decay;
  return kept;
}

/// base = kept·master + base.
inline void add_kept(const Tensor& base, const Tensor& master, double kept, const Stream& stream) {
  kernels::axpy(base, base, static_cast<float>(kept), master, stream);
}

/// A forecast on the stream's device.
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

}  // namespace hybrid_trainer
