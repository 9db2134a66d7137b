#pragma once

#include "hybrid_trainer/core/tensor.h"
#include "hybrid_trainer/kernels/matmul.h"

namespace hybrid_trainer::kernels {

/// Some columns of each row of a matrix, from `first` on.
struct Columns {
  Tensor rows;  // (N, any)
  std::int64_t first = 0;
};

/// The first `count` of the columns `to` become those of `from`; the others stay. f32, bf16 or i32, of
/// one dtype, and as many rows; not of one tensor.
void copy_columns(const Columns& to, const Columns& from, std::int64_t count, const Stream& stream);
/// The first `count` of the columns `to` += those of `from`. f32 or bf16, else as copy_columns.
void add_columns(const Columns& to, const Columns& from, std::int64_t count, const Stream& stream);

/// y = x·σ(gate). x, y: (N, C), may alias; gate: C columns of a matrix of N rows; f32 or bf16, of one
/// dtype.
void sigmoid_gate_forward(const Tensor& y, const Tensor& x, const Columns& gate,
                          const Stream& stream);
/// dx, which may alias dy, and `dgate` become the gradients; other columns stay. x: before forward.
void sigmoid_gate_backward(const Tensor& dx, const Columns& dgate, const Tensor& dy,
                           const Tensor& x, const Columns& gate, const Stream& stream);

/// y[b, t] = token_table[tokens[b, t]] + position_table[first_position + t].
/// tokens: (B, T) i32. token_table: (V, C), position_table: (max T, C) or undefined, and then nothing
/// is added; y: (B, T, C), all of one dtype. Throws DataError that names the first token outside [0, V).
void embedding_forward(const Tensor& y, const Tensor& tokens, const Tensor& token_table,
                       const Tensor& position_table, std::int64_t first_position,
                       const Stream& stream);

/// dtoken_table[tokens[b, t]] += dy[b, t]; dposition_table[t] (+)= sum over b of dy[b, t], if
/// defined. Tables f32; dy f32 or bf16. kOverwrite clears a table first. Adds in the order of the tokens, so that
/// equal inputs give bit-identical results.
void embedding_backward(const Tensor& dtoken_table, GradientMode token_mode,
                        const Tensor& dposition_table, GradientMode position_mode, const Tensor& dy,
                        const Tensor& tokens, const Stream& stream);

/// columns[k, r] = x[r, indices[k]]: some of a matrix's columns, each as a row. x: (R, C) f32.
/// columns: (K, R) f32. indices: (K) i32 within [0, C), which is not checked.
void gather_columns(const Tensor& columns, const Tensor& x, const Tensor& indices,
                    const Stream& stream);
/// x[r, indices[k]] = columns[k, r]; other columns stay. The indices differ. x: f32 or bf16, the
/// rest as in gather_columns.
void scatter_columns(const Tensor& x, const Tensor& columns, const Tensor& indices,
                     const Stream& stream);

}  // namespace hybrid_trainer::kernels
