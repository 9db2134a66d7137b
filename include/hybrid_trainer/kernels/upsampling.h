#pragma once

#include "hybrid_trainer/kernels/window.h"

namespace hybrid_trainer::kernels {

enum class Interpolation {
  kNearest,  // each place is repeated
  kLinear,   // between the middles of places, as PyTorch's align_corners=False
};

/// y = x with `factors` times as many places in each dimension. x: (B, D1..Dn, C), n from 1 to 3; y: (B,
/// f1·D1..fn·Dn, C), f32 or bf16, of one dtype; whole factors of at least 1. Sums in f32.
void upsampling_forward(const Tensor& y, const Tensor& x, const SpatialSizes& factors,
                        Interpolation interpolation, const Stream& stream);
/// dx = the gradient of x, overwritten.
void upsampling_backward(const Tensor& dx, const Tensor& dy, const SpatialSizes& factors,
                         Interpolation interpolation, const Stream& stream);

/// (B, f1·D1..fn·Dn, C).
Shape upsampled_shape(const Shape& x, const SpatialSizes& factors);

}  // namespace hybrid_trainer::kernels
