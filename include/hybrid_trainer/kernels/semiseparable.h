#pragma once

#include "hybrid_trainer/core/tensor.h"
#include "hybrid_trainer/kernels/matmul.h"

namespace hybrid_trainer::kernels {

/// H = T + U·Vᵀ, (N, N), T tridiagonal, in 3·N − 2 + 2·N·r numbers.
struct Semiseparable {
  Tensor diagonal{};  // a, (N) f32
  Tensor above{};     // b, (N − 1) f32: T[i, i + 1]
  Tensor below{};     // c, (N − 1) f32: T[i + 1, i]
  /// (r, N), whose row k is column k of U or V: f32, bf16, u16 (the bits of IEEE half precision) or
  /// i8. So the first rows of both are a coarser H.
  Tensor u{}, v{};
  Tensor u_scales{}, v_scales{};  // (r) f32, of which row k of i8 factors is a multiple; else none

  std::int64_t size() const { return diagonal.size(0); }
  std::int64_t rank() const { return u.size(0); }
};

/// Each row of y = H·(that row of x), or Hᵀ·. x, y: (B, N) f32 or bf16, of one dtype; sums in f32.
/// O(B·N·r). A row has the same bits whatever rows are beside it.
void semiseparable_forward(const Tensor& y, const Tensor& x, const Semiseparable& h,
                           Transpose transpose, const Stream& stream);

/// Where the gradients of y = H·x go; undefined: not wanted. Those of U and V are f32 whatever the
/// dtype of the factors.
struct SemiseparableGradients {
  Tensor x{};                                     // (B, N), as x; overwritten
  Tensor diagonal{}, above{}, below{}, u{}, v{};  // as in Semiseparable, f32, (+)= as `mode` says
  GradientMode mode = GradientMode::kOverwrite;
};

/// Gradients for dy, as x, in O(B·N·r). Sums over rows in a fixed order.
void semiseparable_backward(const SemiseparableGradients& gradients, const Tensor& dy,
                            const Tensor& x, const Semiseparable& h, const Stream& stream);

}  // namespace hybrid_trainer::kernels
