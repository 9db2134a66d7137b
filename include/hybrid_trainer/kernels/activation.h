#pragma once

#include "hybrid_trainer/core/tensor.h"

namespace hybrid_trainer::kernels {

enum class ActivationKind {
  kRelu,
  kSilu,  // x/(1 + e^(−x))
  kGelu,  // x·Φ(x), to within 3e-7; the tanh form is gelu_forward
};

/// y = f(x), element by element. f32 or bf16, of one shape and dtype; y may be x.
void activation_forward(const Tensor& y, const Tensor& x, ActivationKind kind,
                        const Stream& stream);
/// dx = dy·f'(x); dx may be dy or x.
void activation_backward(const Tensor& dx, const Tensor& dy, const Tensor& x, ActivationKind kind,
                         const Stream& stream);

}  // namespace hybrid_trainer::kernels
