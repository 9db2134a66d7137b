#pragma once

#include "hybrid_trainer/core/tensor.h"

namespace hybrid_trainer::kernels {

/// A gate of bounded values, as gpt-oss has it: y = (up' + 1)·gate'·σ(sharpness·gate'), gate' =
/// min(gate, limit), up' = up cut to ±limit. Source: OpenAI 2025, "gpt-oss-120b & gpt-oss-20b model
/// card", and its reference program.
struct ClampedGate {
  float limit = 7;
  float sharpness = 1.702f;
};

/// x: (N, 2·F), a row's gates before its ups; y: (N, F); f32 or bf16. NaN stays NaN.
void clamped_gate_forward(const Tensor& y, const Tensor& x, const ClampedGate& gate,
                          const Stream& stream);
/// dx = the gradient of x, 0 of what was cut; may alias x.
void clamped_gate_backward(const Tensor& dx, const Tensor& dy, const Tensor& x,
                           const ClampedGate& gate, const Stream& stream);

}  // namespace hybrid_trainer::kernels
