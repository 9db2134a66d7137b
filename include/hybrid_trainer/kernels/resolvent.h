#pragma once

#include <complex>
#include <limits>

#include "hybrid_trainer/core/tensor.h"
#include "hybrid_trainer/kernels/matmul.h"

namespace hybrid_trainer::kernels {

/// T − z·I of N rows: T has v + shift on its diagonal.
struct ResolventSpec {
  std::complex<double> z{0, 1};  // with an imaginary part; for symmetric T, |G| <= 1/|Im z|
  double shift = -2;             // the diagonal of a second difference
  double limit = std::numeric_limits<double>::infinity();  // v is cut to [−limit, limit] first
};

/// Of a batch of B sequences of N tokens, M matrices each.
struct ResolventInput {
  Tensor values{};     // (B, N, any) f32, bf16 or f64: v is columns [first, first + M)
  Tensor above{};      // b, (N − 1, M): T[i, i + 1], f32, or f64 where v is; undefined: ones
  Tensor below{};      // c, likewise: T[i + 1, i]; both or neither
  Tensor positions{};  // (B, N) i32 or undefined: where it is 0, b and c before the token are 0
  std::int64_t first = 0;
};

/// The diagonal of (T − z·I)⁻¹ in O(N). g: (B, N, 2·M) of v's dtype, the real parts of all M before
/// the imaginary ones. By pivots from both ends, which stay away from 0 where b·c >= 0: no logarithm
/// and no overflow at any N. Sums in f32, or f64 where v is. Throws Error where z is real.
void resolvent_forward(const Tensor& g, const ResolventInput& input, const ResolventSpec& spec,
                       const Stream& stream);

/// Where the gradients go. Undefined: not wanted.
struct ResolventGradients {
  Tensor values{};  // as the input's: v's columns are overwritten, with 0 where v is beyond the
                    // limit; the others stay
  Tensor above{};   // as b, (+)= as `mode` says, like the next two; both or neither
  Tensor below{};
  Tensor z{};  // (2), real and imaginary part, f32, or f64 where v is
  GradientMode mode = GradientMode::kOverwrite;
};

/// Exact gradients for dg, as g, in O(N): dG_i/dv_j = −G_ij·G_ji, whose products over rows are sums
/// from both ends. Computes the pivots again. Sums over the batch in its order.
void resolvent_backward(const ResolventGradients& gradients, const Tensor& dg,
                        const ResolventInput& input, const ResolventSpec& spec,
                        const Stream& stream);

}  // namespace hybrid_trainer::kernels
