#pragma once

#include <complex>
#include <limits>

#include "hybrid_trainer/core/tensor.h"
#include "hybrid_trainer/kernels/indexing.h"
#include "hybrid_trainer/kernels/matmul.h"

namespace hybrid_trainer::kernels {

/// Settings of the resolvent (T − z·I)⁻¹ of a tridiagonal (N, N) matrix T with diagonal v + shift.
struct ResolventSpec {
  std::complex<double> z{0, 1};  // not real; for symmetric T, |G| <= 1/|Im z|
  double shift = -2;             // diagonal of a second difference
  double limit = std::numeric_limits<double>::infinity();  // v is clamped to [−limit, limit]
};

/// Inputs of a resolvent for B sequences of N tokens, M matrices each.
struct ResolventInput {
  Tensor values{};     // (B, N, any) f32, bf16 or f64: v is columns [first, first + M)
  Tensor above{};      // b, (N − 1, M): T[i, i + 1], f32, or f64 if v is f64; undefined: ones
  Tensor below{};      // c: T[i + 1, i], otherwise like `above`; both are defined or neither
  Tensor positions{};  // (B, N) i32 or undefined; position 0 sets the b and c before it to 0
  std::int64_t first = 0;
};

/// g = the diagonal of (T − z·I)⁻¹ in O(N). g: (B, N, 2·M) of v's dtype, M real, then M imaginary
/// parts. Eliminates from both ends; pivots are bounded away from 0 if b·c >= 0, so nothing
/// overflows at any N. Accumulates in f32, or f64 if v is f64. Throws Error if z is real.
void resolvent_forward(const Tensor& g, const ResolventInput& input, const ResolventSpec& spec,
                       const Stream& stream);

/// Gradients of a resolvent; each may be undefined if it is not wanted.
struct ResolventGradients {
  Tensor values{};  // like the input; overwrites the columns of v, with 0 for clamped elements
  Tensor above{};   // like b, (+)= according to `mode`, like the next two; both or neither
  Tensor below{};
  Tensor z{};  // (2), real and imaginary part, f32, or f64 if v is f64
  GradientMode mode = GradientMode::kOverwrite;
};

/// Computes exact gradients from dg (shaped like g) in O(N): dG_i/dv_j = −G_ij·G_ji, summed from
/// both ends. Recomputes the pivots. Sums over the batch in order.
void resolvent_backward(const ResolventGradients& gradients, const Tensor& dg,
                        const ResolventInput& input, const ResolventSpec& spec,
                        const Stream& stream);

/// Sizes of token taps, the weights of a token's and its neighbors' values: H heads of P channels.
struct TokenTapsSpec {
  std::int64_t heads = 1;                              // H
  bool ahead = false;                                  // also a tap on the next token
  std::int64_t taps() const { return ahead ? 3 : 2; }  // K
};

/// Inputs of a product of T + U·Vᵀ with B sequences of T tokens. The tridiagonal part is given as
/// taps per token. The low-rank part is divided by n_t, the number of tokens that row t sums over:
/// t + 1, or with `ahead` the length of the document.
struct TokenTapsInput {
  Tensor low{};        // (B, T, H·P): U·Vᵀ·x
  Tensor more{};       // like low, added to it, or undefined
  Columns x{};         // (B·T, any): H·P columns
  Columns taps{};      // (B·T, any): H·K columns, head-major
  Tensor positions{};  // (B, T) i32 or undefined; restricts neighbors to the token's document
  Tensor before{};     // (B, 1, H·P): x before the first token of a sequence that continues a
                       // document; forward only
};

/// y[t] = (low + more)[t]/n_t + Σ_τ taps[t, τ]·x[t + τ − 1] in each head. y: shaped like low, may
/// be low. All f32 or bf16, of one dtype; accumulates in f32.
void token_taps_forward(const Tensor& y, const TokenTapsInput& input, const TokenTapsSpec& spec,
                        const Stream& stream);

/// Writes dlow = dy/n, which is also the gradient of `more`. Adds the gradient of x to dx and
/// writes the gradient of the taps to dtaps. dlow is shaped like dy and must not be dy. dlow, or dx
/// and dtaps, may be undefined if they are not wanted. Does not read input.low.
void token_taps_backward(const Tensor& dlow, const Columns& dx, const Columns& dtaps,
                         const Tensor& dy, const TokenTapsInput& input, const TokenTapsSpec& spec,
                         const Stream& stream);

/// Decoding step for one token of each of N texts, without `ahead`. y, low: (N, H·P). state:
/// (texts, 1, H·P), the last x of each text, replaced by the new one. positions, texts: (N) i32,
/// each text at most once (unchecked). The bits of a row do not depend on other rows.
void token_taps_step(const Tensor& y, const Tensor& low, const Tensor& state, const Columns& x,
                     const Columns& taps, const Tensor& positions, const Tensor& texts,
                     const TokenTapsSpec& spec, const Stream& stream);

}  // namespace hybrid_trainer::kernels
