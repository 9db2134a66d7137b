#pragma once

#include <cstdint>
#include <span>

#include "hybrid_trainer/core/tensor.h"
#include "hybrid_trainer/kernels/matmul.h"

namespace hybrid_trainer::kernels {

/// Rows that lie together by group, such as those of an expert (see Routing). Matrix i of a call is that
/// of rows [offsets[first + i], offsets[first + i + 1]). Other rows are neither read nor written.
struct GroupedRows {
  Tensor offsets;          // (groups + 1) i32, on the stream's device
  std::int64_t first = 0;  // group of the call's first matrix
};

// Each result has the same bits however the groups are divided among calls.

/// y = x·wᵀ + bias, or y +=, group by group. x: (R, I); w: (O, I) of each group, f32 or bf16 like x and
/// y; biases: (O) f32 of each group, or none; y: (R, O). Sums in f32. A row of a group of at most
/// kFewRows rows has, on a processor, the same bits whatever rows are beside it.
void grouped_forward(const Tensor& y, const Tensor& x, const GroupedRows& rows,
                     std::span<const Tensor> w, std::span<const Tensor> biases, GradientMode mode,
                     const Stream& stream);

/// dx = dy·w, or dx +=, group by group. dy: (R, O); w: (O, I); dx: (R, I), of one dtype.
void grouped_backward_input(const Tensor& dx, const Tensor& dy, const GroupedRows& rows,
                            std::span<const Tensor> w, GradientMode mode, const Stream& stream);

/// dw (+)= dyᵀ·x of each group: zeros where a group has no rows. dy: (R, O); x: (R, I), f32 or bf16;
/// dw: (O, I) of each group, all f32, or bf16 as they are.
void grouped_backward_weight(std::span<const Tensor> dw, const Tensor& dy, const Tensor& x,
                             const GroupedRows& rows, GradientMode mode, const Stream& stream);

/// dbias (+)= Σ of each group's rows of dy, times the row's factor. dbiases: (O) f32 of each group;
/// factors: (R) f32, or undefined for 1.
void grouped_bias_backward(std::span<const Tensor> dbiases, const Tensor& dy, const Tensor& factors,
                           const GroupedRows& rows, GradientMode mode, const Stream& stream);

/// sums[r] = ⟨x[r], vector of the row's group⟩: what a bias adds to the gradient of a factor of its rows.
/// x: (R, C), f32 or bf16; vectors: (C) f32 of each group; sums: (R) f32.
void grouped_dots(const Tensor& sums, const Tensor& x, const GroupedRows& rows,
                  std::span<const Tensor> vectors, const Stream& stream);

}  // namespace hybrid_trainer::kernels
