#pragma once

#include "hybrid_trainer/kernels/matmul.h"
#include "kernels/backend.h"

namespace hybrid_trainer::kernels::cpu {

/// y = x·wᵀ [+ y] [+ bias] [+ residual] for at most kFewRows rows: each row of w is read from memory
/// once. Each row of y has the same bits whatever rows are beside it.
/// x: (N, I), w: (O, I) of one dtype, y: (N, O) of that dtype or f32. bias, residual may be
/// undefined.
void skinny_gemm(const Tensor& y, const Tensor& x, const Tensor& w, const Tensor& bias,
                 const Tensor& residual, bool accumulate, const Stream& stream);

/// The operands of such a product.
struct SkinnyRows {
  Tensor y, x, w, bias{}, residual{};
  bool accumulate = false;
};

/// Outputs [begin, end) of it, on the calling thread and to the same bits. scratch: as many floats as
/// x has elements.
void skinny_rows(const SkinnyRows& of, std::int64_t begin, std::int64_t end, float* scratch);

}  // namespace hybrid_trainer::kernels::cpu
