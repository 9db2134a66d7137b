#pragma once

#include "hybrid_trainer/core/tensor.h"
#include "hybrid_trainer/kernels/matmul.h"

namespace hybrid_trainer::kernels {

/// Columns of a matrix from `first` on.
struct Columns {
  Tensor rows;  // (N, any)
  std::int64_t first = 0;
};

/// Copies `count` columns between two tensors of one dtype (f32, bf16 or i32).
void copy_columns(const Columns& to, const Columns& from, std::int64_t count, const Stream& stream);
/// Adds `count` columns of `from` to `to`. f32 or bf16; see copy_columns.
void add_columns(const Columns& to, const Columns& from, std::int64_t count, const Stream& stream);

/// to = a·b in the first `count` columns; `to` may be a or b. f32 or bf16; see copy_columns.
void multiply_columns(const Columns& to, const Columns& a, const Columns& b, std::int64_t count,
                      const Stream& stream);

/// y = x·σ(gate). x, y: (N, C), may alias; gate: C columns of N rows; f32 or bf16, of one dtype.
void sigmoid_gate_forward(const Tensor& y, const Tensor& x, const Columns& gate,
                          const Stream& stream);
/// dx, dgate = the gradients of x and gate. dx may alias dy. Other columns of dgate's matrix are
/// unchanged. x: input of forward.
void sigmoid_gate_backward(const Tensor& dx, const Columns& dgate, const Tensor& dy,
                           const Tensor& x, const Columns& gate, const Stream& stream);

/// y[b, t] = token_table[tokens[b, t]] + position_table[first_position + t]; an undefined
/// position_table adds nothing. tokens: (B, T) i32; y: (B, T, C), of one dtype. Throws DataError
/// naming an invalid token.
void embedding_forward(const Tensor& y, const Tensor& tokens, const Tensor& token_table,
                       const Tensor& position_table, std::int64_t first_position,
                       const Stream& stream);

/// Adds dy[b, t] to dtoken_table[tokens[b, t]] and, if it is defined, Σ_b dy[b, t] to
/// dposition_table[t], in the order of the tokens. kOverwrite clears a table first. Tables are f32.
void embedding_backward(const Tensor& dtoken_table, GradientMode token_mode,
                        const Tensor& dposition_table, GradientMode position_mode, const Tensor& dy,
                        const Tensor& tokens, const Stream& stream);

/// columns[k, r] = x[r, indices[k]]. x: (R, C), columns: (K, R) f32. indices: (K) i32 (unchecked).
void gather_columns(const Tensor& columns, const Tensor& x, const Tensor& indices,
                    const Stream& stream);
/// x[r, indices[k]] = columns[k, r]; other columns are unchanged. Indices must be distinct. x: f32
/// or bf16; other arguments: see gather_columns.
void scatter_columns(const Tensor& x, const Tensor& columns, const Tensor& indices,
                     const Stream& stream);

}  // namespace hybrid_trainer::kernels
