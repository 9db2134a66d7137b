#pragma once

#include "hybrid_trainer/core/random.h"
#include "hybrid_trainer/core/tensor.h"

namespace hybrid_trainer::kernels {

/// y = x + z. Arguments may alias. f32 or bf16, all of one dtype.
void add(const Tensor& y, const Tensor& x, const Tensor& z, const Stream& stream);
/// y = a·x. May alias. f32 or bf16.
void scale(const Tensor& y, const Tensor& x, float a, const Stream& stream);
/// y = a·x with a scalar in device memory, a: (1) f32. May alias. f32 or bf16.
void scale_by(const Tensor& y, const Tensor& x, const Tensor& a, const Stream& stream);
/// y = x/(√squares + floor). f32, may alias. `squares`: (1) f64 on the device, read by the kernel.
void normalize(const Tensor& y, const Tensor& x, const Tensor& squares, double floor,
               const Stream& stream);
/// y = from + a·direction; y may alias either. f32 or bf16.
void axpy(const Tensor& y, const Tensor& from, float a, const Tensor& direction,
          const Stream& stream);
/// Converts between f32 and bf16, or copies if the dtypes are equal.
void cast(const Tensor& y, const Tensor& x, const Stream& stream);

/// Computes GELU, tanh approximation: y = x/2·(1 + tanh(√(2/π)·(x + 0.044715·x³))). x, y: same
/// shape, f32 or bf16. Source: Hendrycks & Gimpel 2016, section 2.
void gelu_forward(const Tensor& y, const Tensor& x, const Stream& stream);
/// dx = dy · gelu'(x); dx may alias dy.
void gelu_backward(const Tensor& dx, const Tensor& dy, const Tensor& x, const Stream& stream);

enum class Gate {
  kSilu,       // g/(1 + e^(−g))
  kGelu,       // see gelu_forward
  kExactGelu,  // ActivationKind::kGelu
};

/// y = f(gate)·up. x: (N, 2·F), with F gates, then F ups in each row; y: (N, F); f32 or bf16.
/// Source: Shazeer 2020, "GLU variants improve transformer".
void gated_forward(const Tensor& y, const Tensor& x, Gate gate, const Stream& stream);
/// dx = the gradient of x; may alias x.
void gated_backward(const Tensor& dx, const Tensor& dy, const Tensor& x, Gate gate,
                    const Stream& stream);

/// y = cap·tanh(x/cap). May alias. f32 or bf16. Source: Gemma Team 2024, "Gemma 2", section 2.
void cap_forward(const Tensor& y, const Tensor& x, float cap, const Stream& stream);
/// dx = dy·(1 − (y/cap)²); dx may alias dy.
void cap_backward(const Tensor& dx, const Tensor& dy, const Tensor& y, float cap,
                  const Stream& stream);

/// y = x clamped to [−limit, limit]; NaN stays NaN. May alias. f32 or bf16.
void clip(const Tensor& y, const Tensor& x, float limit, const Stream& stream);
/// dx = dy if |x| <= limit, else 0; dx may alias dy.
void clip_backward(const Tensor& dx, const Tensor& dy, const Tensor& x, float limit,
                   const Stream& stream);

/// Selects the random numbers of a dropout call.
struct DropoutNumbers {
  RandomKey key{};
  /// Index of the random number for x's first element; above 0 if x is a part of a larger tensor.
  std::uint64_t first = 0;
  /// If defined, the kernel reads key.step from here: (2) i32 on the device, low word first.
  Tensor step_words{};
  /// Maps row r of x to a row of the larger tensor: n = rows[r], or r if `rows` is undefined. If
  /// run > 0, the row is n / run · stride + n % run instead of n.
  Tensor rows{};  // (R) i32; x is (R, columns)
  std::int64_t run = 0, stride = 0;
};

/// Applies dropout: sets each element to 0 with probability p, and scales the other elements by
/// 1/(1 − p). Element i uses random number first + i. The same elements are therefore dropped in
/// recomputation, in slices of a tensor, and in backward, which is the same call on the gradient.
/// May alias.
void dropout(const Tensor& y, const Tensor& x, float p, const DropoutNumbers& numbers,
             const Stream& stream);

enum class ActivationKind {
  kRelu,
  kSilu,  // x/(1 + e^(−x))
  kGelu,  // x·Φ(x) within 3e-7; gelu_forward is the tanh approximation
};

/// y = f(x). f32 or bf16, of one shape and dtype; y may be x.
void activation_forward(const Tensor& y, const Tensor& x, ActivationKind kind,
                        const Stream& stream);
/// dx = dy·f'(x); dx may be dy or x.
void activation_backward(const Tensor& dx, const Tensor& dy, const Tensor& x, ActivationKind kind,
                         const Stream& stream);

/// Clamped gate: y = (up' + 1)·gate'·σ(sharpness·gate'), gate' = min(gate, limit), up' = up clamped
/// to ±limit. Source: OpenAI 2025, "gpt-oss-120b & gpt-oss-20b model card" and program.
struct ClampedGate {
  float limit = 7;
  float sharpness = 1.702f;
};

/// y = gate(x). x: (N, 2·F), F gates, then F ups per row; y: (N, F); f32 or bf16. NaN stays NaN.
void clamped_gate_forward(const Tensor& y, const Tensor& x, const ClampedGate& gate,
                          const Stream& stream);
/// dx = the gradient of x, 0 for clamped elements; may alias x.
void clamped_gate_backward(const Tensor& dx, const Tensor& dy, const Tensor& x,
                           const ClampedGate& gate, const Stream& stream);

}  // namespace hybrid_trainer::kernels
