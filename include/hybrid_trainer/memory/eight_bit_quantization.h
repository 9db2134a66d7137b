#pragma once

#include "hybrid_trainer/kernels/eight_bit.h"

namespace hybrid_trainer {

/// `values`, f32 (rows, columns) on the host, in 8 bits (kernels/eight_bit.h): the codes are
/// round(x · (127 / magnitude)), to even on halves. A row of zeros stays zeros. The tensors lie in the
/// pool of `home`.
kernels::EightBitTensors quantize_eight_bit(const Tensor& values, const Stream& home);

}  // namespace hybrid_trainer
