#pragma once

#include "kernels/backend.h"

namespace hybrid_trainer::kernels::cpu {

/// Most rows of x for which x·wᵀ is bound by reading w, so that one pass over w is fastest.
inline constexpr std::int64_t kFewRows = 4;

/// y = x·wᵀ [+ y] [+ bias] [+ residual] for at most kFewRows rows: each row of w is read once.
/// x: (N, I), w: (O, I) of one dtype, y: (N, O) of that dtype or f32. bias, residual may be
/// undefined.
void skinny_gemm(const Tensor& y, const Tensor& x, const Tensor& w, const Tensor& bias,
                 const Tensor& residual, bool accumulate, const Stream& stream);

}  // namespace hybrid_trainer::kernels::cpu
