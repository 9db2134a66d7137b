#pragma once

#include <complex>
#include <limits>

#include "hybrid_trainer/core/tensor.h"
#include "hybrid_trainer/kernels/indexing.h"
#include "hybrid_trainer/kernels/matmul.h"

namespace hybrid_trainer::kernels {

/// Settings of the resolvent (T − z·I)⁻¹ of a tridiagonal (N, N) matrix T with diagonal v + shift.
struct ResolventSpec {
  std::complex<double> z{0, 1};  // not real; for symmetric T, |g| <= 1/|Im z|
  double shift = -2;             // default: the diagonal of a second difference
  double limit = std::numeric_limits<double>::infinity();  // v is clamped to [−limit, limit]
};

/// Inputs of a resolvent for B sequences of N tokens, M matrices each.
struct ResolventInput {
  Tensor values{};  // (B, N, any) f32, bf16 or f64: v is columns [first, first + M)
  Tensor above{};   // b, (N − 1, M): T[i, i + 1], f32, or f64 if v is f64; undefined: ones
  Tensor below{};   // c: T[i + 1, i]; like `above`; both are defined, or neither is
  /// (B, N) i32 or undefined. Position 0 begins a document: b and c before it count as 0.
  Tensor positions{};
  std::int64_t first = 0;
};

/// g = the diagonal of (T − z·I)⁻¹ in O(N). g: (B, N, 2·M) of v's dtype; a row contains M real,
/// then M imaginary parts. If b·c >= 0, nothing overflows. Accumulates in f32, or f64 if v is f64.
/// Throws Error if z is real.
void resolvent_forward(const Tensor& g, const ResolventInput& input, const ResolventSpec& spec,
                       const Stream& stream);

/// Gradients of a resolvent. Unwanted gradients may be undefined.
struct ResolventGradients {
  Tensor values{};  // like the input; overwrites the columns of v, with 0 for clamped elements
  Tensor above{};   // like b; overwritten or added to, according to `mode`, as are `below` and `z`
  Tensor below{};
  Tensor z{};  // (2), real and imaginary part, f32, or f64 if v is f64
  GradientMode mode = GradientMode::kOverwrite;
};

/// Computes exact gradients from dg in O(N): dG_i/dv_j = −G_ij·G_ji. Sums over the batch in order.
void resolvent_backward(const ResolventGradients& gradients, const Tensor& dg,
                        const ResolventInput& input, const ResolventSpec& spec,
                        const Stream& stream);

/// Sizes of token taps: H heads of P channels. A token's taps are the weights of its own value and
/// of its neighbors' values.
struct TokenTapsSpec {
  std::int64_t heads = 1;                              // H
  bool ahead = false;                                  // adds a tap on the next token
  std::int64_t taps() const { return ahead ? 3 : 2; }  // K
};

/// Inputs of the product of a tridiagonal matrix plus U·Vᵀ with B sequences of T tokens. A token's
/// taps are its row of the tridiagonal matrix. The low-rank part is divided by n_t: t + 1, or the
/// length of the document if `ahead` is set.
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

/// Writes dy/n, the gradient of `low` and `more`, to dlow, which must not be dy, and the gradient
/// of the taps to dtaps. Adds to dx. dlow may be undefined; dx and dtaps may both be undefined.
void token_taps_backward(const Tensor& dlow, const Columns& dx, const Columns& dtaps,
                         const Tensor& dy, const TokenTapsInput& input, const TokenTapsSpec& spec,
                         const Stream& stream);

/// Computes token_taps_forward for one new token of each of N texts. Does not support `ahead`. y,
/// low: (N, H·P). state: (texts, 1, H·P), the last x of each text, updated by the call. positions,
/// texts: (N) i32, each text at most once (unchecked). The bits of a row do not depend on other
/// rows.
void token_taps_step(const Tensor& y, const Tensor& low, const Tensor& state, const Columns& x,
                     const Columns& taps, const Tensor& positions, const Tensor& texts,
                     const TokenTapsSpec& spec, const Stream& stream);

}  // namespace hybrid_trainer::kernels
