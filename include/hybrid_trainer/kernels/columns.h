#pragma once

#include "hybrid_trainer/core/tensor.h"

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

}  // namespace hybrid_trainer::kernels
