#pragma once

#include "hybrid_trainer/kernels/matmul.h"
#include "hybrid_trainer/kernels/window.h"

namespace hybrid_trainer::kernels {

// Convolution over one to three dimensions of space, channels last. x: (B, D1..Dn, C); weight: (O,
// taps·C/groups), of a row the taps outermost, the last dimension's fastest, and the channels of a
// group innermost; y: (B, O1..On, O) (see window_outputs). All f32 or bf16, of one dtype. Channels and
// outputs are in `groups` equal parts, and an output reads the channels of its part alone. Beyond x are
// zeros. Sums in f32, in an order that depends on the sizes alone.

/// y[o] = bias + Σ over the places that window o reads of weight·x. bias: (O) f32 or undefined.
void convolution_forward(const Tensor& y, const Tensor& x, const Tensor& weight, const Tensor& bias,
                         const Window& window, std::int64_t groups, const Stream& stream);

/// dx = the gradient of x: each place sums those of the windows that read it.
void convolution_backward_input(const Tensor& dx, const Tensor& dy, const Tensor& weight,
                                const Window& window, std::int64_t groups, const Stream& stream);

/// dweight (+)= the gradient of weight, f32. That of the bias is bias_backward of dy's rows.
void convolution_backward_weight(const Tensor& dweight, const Tensor& dy, const Tensor& x,
                                 const Window& window, std::int64_t groups, GradientMode mode,
                                 const Stream& stream);

}  // namespace hybrid_trainer::kernels
