#pragma once

#include <vector>

#include "hybrid_trainer/core/tensor.h"
#include "kernels/cpu/block_codes.h"

namespace hybrid_trainer::kernels::cpu {

/// Rows of x, rounded to 8 bits as weights of a format want them: in blocks of 32 with scale and sum in
/// f16, or of 256 with an f32 scale. A block with a NaN or an infinity gets the scale NaN.
class RoundedInputs {
 public:
  /// x: (N, inputs) f32 or bf16. Takes workspace, and on a simulated device does no more.
  RoundedInputs(BlockFormat format, const Tensor& x, const Stream& stream);
  BlockFormat format() const { return format_; }
  const std::vector<RoundedRow>& rows() const { return rows_; }

 private:
  BlockFormat format_;
  Tensor memory_;
  std::vector<RoundedRow> rows_;
};

}  // namespace hybrid_trainer::kernels::cpu
