#pragma once

#include "hybrid_trainer/core/tensor.h"

namespace hybrid_trainer::kernels {

enum class Distance {
  kSquared,  // d²
  kHuber,    // d²/2 where |d| ≤ delta, else delta·(|d| − delta/2)
};

/// losses[i] = distance of d = x[i] − targets[i]; and, where `gradient_scale` is not 0, x becomes its own
/// gradient in place: the distance's slope times gradient_scale. x, targets, losses: of as many
/// elements, f32. delta: above 0.
void regression_loss(const Tensor& losses, const Tensor& x, const Tensor& targets,
                     Distance distance, float delta, float gradient_scale, const Stream& stream);

}  // namespace hybrid_trainer::kernels
