#pragma once

#include <span>

#include "hybrid_trainer/core/staged_tensor.h"
#include "hybrid_trainer/kernels/elementwise.h"
#include "hybrid_trainer/kernels/quantization.h"
#include "src/optim/update_predictor.h"

namespace hybrid_trainer {

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
