#pragma once

#include <vector>

#include "hybrid_trainer/kernels/four_bit.h"
#include "hybrid_trainer/memory/frozen_weight.h"

namespace hybrid_trainer {

/// `values`, f32 on the host, in 4 bits (kernels/four_bit.h); on a bound the lower value is taken. A
/// block of zeros stays zeros. The offset is the mean magnitude.
kernels::FourBitTensors quantize_four_bit(const Tensor& values, const Stream& home);

/// A frozen matrix in 4 bits; whoever acquires it gets values made for the time of the computation.
class FourBitWeight final : public FrozenWeight {
 public:
  /// `values`: f32 on the host, or simulated. `part_rows`: of the matrices that one file holds each
  /// of, one under the other, which are quantised each by itself.
  FourBitWeight(const Tensor& values, const std::vector<std::int64_t>& part_rows,
                const Stream& home);

 private:
  struct Part {
    std::int64_t first_row, rows;
    kernels::FourBitTensors tensors;
  };
  Tensor values_in(DType dtype, const Stream& stream) const override;
  Shape shape_;
  std::vector<Part> parts_;
};

}  // namespace hybrid_trainer
