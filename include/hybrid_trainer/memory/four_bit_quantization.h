#pragma once

#include "hybrid_trainer/kernels/four_bit.h"

namespace hybrid_trainer {

/// `values`, f32 on the host, in 4 bits (kernels/four_bit.h), with magnitudes quantized, too; on a
/// bound the lower value is taken. A block of zeros stays zeros. The offset is the mean magnitude. The
/// tensors lie in the pool of `home`.
kernels::FourBitTensors quantize_four_bit(const Tensor& values, kernels::FourBitType type,
                                          const Stream& home);

}  // namespace hybrid_trainer
