#pragma once

#include <complex>
#include <limits>

#include "hybrid_trainer/core/tensor.h"
#include "hybrid_trainer/kernels/indexing.h"
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

/// H heads of P channels. A head's taps of a token read its own value and its neighbors'.
struct TokenTapsSpec {
  std::int64_t heads = 1;  // H
  bool ahead = false;      // taps of the token before, the own and the one after; else without that
  std::int64_t taps() const { return ahead ? 3 : 2; }  // K
};

/// Rows of a matrix T + U·Vᵀ of B sequences of T tokens: T by taps that each token has, the low-rank
/// part divided by the tokens that a row sums over, t + 1, or those of the document with `ahead`.
struct TokenTapsInput {
  Tensor low{};        // (B, T, H·P): U·Vᵀ·x
  Tensor more{};       // as low, added to it, or undefined
  Columns x{};         // (B·T, any): H·P columns
  Columns taps{};      // (B·T, any): H·K columns, those of a head side by side
  Tensor positions{};  // (B, T) i32 or undefined; neighbors are of a token's own document
  Tensor before{};     // (B, 1, H·P): x before the first token of each sequence, where it goes on
                       // with a document; forward alone
};

/// y[t] = (low + more)[t]/n_t + Σ_τ taps[t, τ]·x[t + τ − 1] in each head. y: as low, which it may be.
/// All f32 or bf16, of one dtype; sums in f32.
void token_taps_forward(const Tensor& y, const TokenTapsInput& input, const TokenTapsSpec& spec,
                        const Stream& stream);

/// dlow = dy/n, which is also the gradient of `more`; the columns of dx += and those of dtaps = their
/// gradients. dlow: as dy, which it may not be; undefined: not wanted, like both columns. input.low is
/// not read.
void token_taps_backward(const Tensor& dlow, const Columns& dx, const Columns& dtaps,
                         const Tensor& dy, const TokenTapsInput& input, const TokenTapsSpec& spec,
                         const Stream& stream);

/// One token of each of N texts, for generation, without `ahead`. y, low: (N, H·P). state: (texts, 1,
/// H·P), each text's last x, which becomes this one. positions, texts: (N) i32, each text once, which
/// nothing checks. A row has the same bits whatever rows are beside it.
void token_taps_step(const Tensor& y, const Tensor& low, const Tensor& state, const Columns& x,
                     const Columns& taps, const Tensor& positions, const Tensor& texts,
                     const TokenTapsSpec& spec, const Stream& stream);

}  // namespace hybrid_trainer::kernels
