#pragma once

#include "hybrid_trainer/kernels/optimizer_update.h"
#include "kernels/backend.h"

namespace hybrid_trainer::kernels {

void adamw_update(Cuda cuda, const Tensor& w, const Tensor& m, const Tensor& v, const Tensor& g,
                  const Tensor& working, const AdamWSettings& settings);
void adamw_direction(Cuda cuda, const Tensor& direction, const Tensor& m, const Tensor& v,
                     const AdamWSettings& settings);
void adamw_update_8bit(Cuda cuda, const Tensor& w, const QuantizedMoments& moments, const Tensor& g,
                       const Tensor& working, const AdamWSettings& settings);
void adamw_direction_8bit(Cuda cuda, const Tensor& direction, const QuantizedMoments& moments,
                          const AdamWSettings& settings);
void sgd_update(Cuda cuda, const Tensor& w, const Tensor& m, const Tensor& g, const Tensor& working,
                float learning_rate, float momentum, float weight_decay, float gradient_scale);
void muon_momentum(Cuda cuda, const Tensor& u, const Tensor& m, const Tensor& g, float momentum,
                   float gradient_scale);
void decayed_step(Cuda cuda, const Tensor& w, const Tensor& u, const Tensor& working,
                  float step_size, float decay_factor);

}  // namespace hybrid_trainer::kernels
