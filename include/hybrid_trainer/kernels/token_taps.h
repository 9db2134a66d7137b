#pragma once

#include "hybrid_trainer/core/tensor.h"
#include "hybrid_trainer/kernels/columns.h"
#include "hybrid_trainer/kernels/matmul.h"

namespace hybrid_trainer::kernels {

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
