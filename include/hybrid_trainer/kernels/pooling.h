#pragma once

#include "hybrid_trainer/kernels/window.h"

namespace hybrid_trainer::kernels {

// Means and maxima of windows over one to three dimensions of space, channels last, each channel by
// itself. x: (B, D1..Dn, C), y: (B, O1..On, C) (see window_outputs), f32 or bf16, of one dtype. A
// window's padding is at most half of its kernel.

/// By what a window's sum is divided.
enum class Divisor {
  kWindow,  // the places of the kernel, those in the padding too, as PyTorch's count_include_pad
  kPlaces,  // those of them that are of x
};

/// y = the mean of each window; outside x are zeros. The dilation is 1. Sums in f32.
void mean_pooling_forward(const Tensor& y, const Tensor& x, const Window& window, Divisor divisor,
                          const Stream& stream);
/// dx = the gradient of x, overwritten.
void mean_pooling_backward(const Tensor& dx, const Tensor& dy, const Window& window,
                           Divisor divisor, const Stream& stream);

/// y = the largest of each window's places of x, NaN if one is; places: i32 of y's shape, which of the
/// example's places that is, the first of equals.
void max_pooling_forward(const Tensor& y, const Tensor& places, const Tensor& x,
                         const Window& window, const Stream& stream);
/// dx = the gradient of x, overwritten. places: of forward.
void max_pooling_backward(const Tensor& dx, const Tensor& dy, const Tensor& places,
                          const Window& window, const Stream& stream);

}  // namespace hybrid_trainer::kernels
