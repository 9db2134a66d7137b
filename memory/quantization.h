#pragma once

#include "kernels/quantized/quantization.h"

namespace hybrid_trainer {

/// `values`, f32 (rows, columns) on the host, in 8 bits (kernels/quantized/quantization.h): the codes are
/// round(x · (127 / magnitude)), to even on halves. A row of zeros stays zeros. The tensors lie in the
/// pool of `home`.
kernels::EightBitTensors quantize_eight_bit(const Tensor& values, const Stream& home);

/// `values`, f32 on the host, in 4 bits (kernels/quantized/quantization.h), with magnitudes quantized, too; on a
/// bound the lower value is taken. A block of zeros stays zeros. The offset is the mean magnitude. The
/// tensors lie in the pool of `home`.
kernels::FourBitTensors quantize_four_bit(const Tensor& values, kernels::FourBitType type,
                                          const Stream& home);

/// `values`, f32 (rows, columns) on the host, in MXFP4 (kernels/quantized/quantization.h): the power of two is
/// that of the block's largest magnitude, divided by 4; numbers beyond 6 of them become 6, others the
/// nearest, on a bound the one with an even code. A block with a NaN or an infinity becomes NaN. The
/// tensors lie in the pool of `home`. Throws DataError where the columns are no multiple of a block.
/// Source: the specification's section 6.3.
kernels::MicroScalingTensors quantize_micro_scaling(const Tensor& values, const Stream& home);

}  // namespace hybrid_trainer
