#pragma once

#include "hybrid_trainer/core/tensor.h"
#include "hybrid_trainer/kernels/matmul.h"

namespace hybrid_trainer::kernels {

/// Columns of a matrix from `first` on.
struct Columns {
  Tensor rows;  // (N, any)
  std::int64_t first = 0;
};

/// Copies the first `count` columns of `from` to `to`. Both have the same dtype, f32, bf16 or i32,
/// and number of rows, and must be different tensors.
void copy_columns(const Columns& to, const Columns& from, std::int64_t count, const Stream& stream);
/// Adds the first `count` columns of `from` to `to`. f32 or bf16; see copy_columns.
void add_columns(const Columns& to, const Columns& from, std::int64_t count, const Stream& stream);

/// y = x·σ(gate). x, y: (N, C), may alias; gate: C columns of N rows; f32 or bf16, of one dtype.
void sigmoid_gate_forward(const Tensor& y, const Tensor& x, const Columns& gate,
                          const Stream& stream);
/// dx, dgate = the gradients of x and gate. dx may alias dy. Other columns of the matrix in dgate
/// are unchanged. x is the input of forward.
void sigmoid_gate_backward(const Tensor& dx, const Columns& dgate, const Tensor& dy,
                           const Tensor& x, const Columns& gate, const Stream& stream);

/// y[b, t] = token_table[tokens[b, t]] + position_table[first_position + t].
/// tokens: (B, T) i32. token_table: (V, C); position_table: (max T, C), or undefined; y: (B, T, C),
/// all of one dtype. Throws DataError naming the first token outside [0, V).
void embedding_forward(const Tensor& y, const Tensor& tokens, const Tensor& token_table,
                       const Tensor& position_table, std::int64_t first_position,
                       const Stream& stream);

/// Adds dy[b, t] to dtoken_table[tokens[b, t]], and Σ_b dy[b, t] to dposition_table[t] unless that
/// is undefined. kOverwrite clears a table first. The tables are f32; dy is f32 or bf16. Adds in
/// the order of the tokens, so that equal inputs give bit-identical results.
void embedding_backward(const Tensor& dtoken_table, GradientMode token_mode,
                        const Tensor& dposition_table, GradientMode position_mode, const Tensor& dy,
                        const Tensor& tokens, const Stream& stream);

/// columns[k, r] = x[r, indices[k]]. x: (R, C) f32. columns: (K, R) f32. indices: (K) i32 in [0, C)
/// (unchecked).
void gather_columns(const Tensor& columns, const Tensor& x, const Tensor& indices,
                    const Stream& stream);
/// x[r, indices[k]] = columns[k, r]; other columns are unchanged. Indices must be distinct. x: f32
/// or bf16; other arguments: see gather_columns.
void scatter_columns(const Tensor& x, const Tensor& columns, const Tensor& indices,
                     const Stream& stream);

}  // namespace hybrid_trainer::kernels
