#pragma once

#include "hybrid_trainer/kernels/matmul.h"
#include "kernels/spatial_window.h"

namespace hybrid_trainer::kernels::cpu {

// Each channel by its own taps: weight (C, taps), groups = C.

void convolve_channels(const Tensor& y, const Tensor& x, const Tensor& weight, const Tensor& bias,
                       const SpatialWindow& window, const Stream& stream);
void convolve_channels_backward_input(const Tensor& dx, const Tensor& dy, const Tensor& weight,
                                      const SpatialWindow& window, const Stream& stream);
void convolve_channels_backward_weight(const Tensor& dweight, const Tensor& dy, const Tensor& x,
                                       const SpatialWindow& window, GradientMode mode,
                                       const Stream& stream);

/// kernels::convolution_backward_weight by tiles of outputs and of taps' inputs.
void convolve_backward_weight(const Tensor& dweight, const Tensor& dy, const Tensor& x,
                              const SpatialWindow& window, std::int64_t groups, GradientMode mode,
                              const Stream& stream);

}  // namespace hybrid_trainer::kernels::cpu
