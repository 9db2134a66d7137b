#pragma once

#include "hybrid_trainer/core/tensor.h"
#include "hybrid_trainer/kernels/elementwise.h"
#include "hybrid_trainer/nn/parameter.h"
#include "hybrid_trainer/optim/optimizer_config.h"
#include "kernels/quantized/quantization.h"
#include "kernels/updates/predicted_update.h"

namespace hybrid_trainer {

/// Forecast for one weight, which is sent to the device after each exact update. Live weights
/// combine it with the gradients in flight. Tensors that a predictor does not use are undefined.
struct UpdateForecast {
  Tensor exact;             // exact f32 weight; may be `base`; undefined if it is not needed
  Tensor base;              // f32 weight including the known part of the next updates
  Tensor rows, columns;     // means of the second moment over columns and rows
  Tensor momentum, scales;  // f32, or codes and their scales
  Tensor squares;           // (1) f64: squared norm of the momentum
  std::int64_t steps = 0;   // number of steps of the exact state

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

struct ExactWeightState {
  const Parameter& parameter;
  const Tensor& master;
  const Tensor& m;
  Tensor v;  // undefined if the optimizer has none
  std::int64_t steps = 0;
};

/// Predicts the pending updates of an optimizer from its exact state and the gradients in flight.
class UpdatePredictor {
 public:
  virtual ~UpdatePredictor() = default;
  virtual UpdateForecast empty_forecast(const Parameter& parameter, const Stream& stream) const;
  /// Writes the forecast of one update per learning rate. Runs on the stream of the exact state.
  virtual void write_forecast(const UpdateForecast& forecast, const ExactWeightState& state,
                              std::span<const float> rates, const Stream& stream) = 0;
  /// Sets `live`, f32 or bf16, to the forecast's weights plus the updates by the gradients in
  /// flight, oldest first. Runs on any stream; copies forecast tensors from other pools.
  virtual void compose(const Tensor& live, const Parameter& parameter,
                       const UpdateForecast& forecast,
                       std::span<const kernels::GradientInFlight> gradients,
                       const Stream& stream) = 0;
  virtual void free_workspace() {}
};

/// Inputs of an update predictor: parameters and the settings of their optimizer.
struct PredictedUpdates {
  const OptimizerConfig& config;
  const std::vector<Parameter*>& parameters;
  bool sketches = false;  // device_side is sketch, see make_update_predictor
  /// Share of the full gradient that is not in flight, for which the momentum is used instead.
  double missing = 0;
};

/// Makes the predictor of updates by the optimizer config.name. `device_side`: anticipated or
/// sketch; any other value predicts nothing. Only adamw uses `missing`, because a factor does not
/// change muon's direction. Throws ConfigError for an optimizer whose updates cannot be predicted.
std::unique_ptr<UpdatePredictor> make_update_predictor(const OptimizerConfig& config,
                                                       const std::string& device_side,
                                                       const std::vector<Parameter*>& parameters,
                                                       double missing = 0);

inline Tensor empty_part(const Shape& shape, const Stream& stream, DType dtype = DType::kF32) {
  return Tensor::empty(shape, dtype, MemoryKind::kPredictor, stream);
}

/// Allocates uninitialized tensors for an 8-bit momentum in the forecast.
inline void add_codes(UpdateForecast& forecast, const Parameter& parameter, const Stream& stream) {
  forecast.momentum = empty_part(parameter.shape(), stream, DType::kU8);
  forecast.scales = empty_part({kernels::quantization_blocks(parameter.elements())}, stream);
}

inline void write_codes(const UpdateForecast& forecast, const Tensor& momentum,
                        const Stream& stream) {
  kernels::quantize(forecast.momentum, forecast.scales, momentum, kernels::QuantizationMap::kSigned,
                    stream);
}

/// Returns the fraction of a weight that remains after one weight decay for each rate.
inline double decay_factor(std::span<const float> rates, double decay) {
  double kept = 1;
  for (const float rate : rates) kept *= 1 - static_cast<double>(rate) * decay;
  return kept;
}

/// Computes base = kept·master + base.
inline void add_decayed(const Tensor& base, const Tensor& master, double kept,
                        const Stream& stream) {
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

}  // namespace hybrid_trainer
