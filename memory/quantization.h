#pragma once

#include "kernels/quantized/quantization.h"

namespace hybrid_trainer {

/// Quantizes `values`, f32 (rows, columns) on the host, to 8 bits
/// (kernels/quantized/quantization.h). Codes are round(x · (127 / magnitude)), halves to even. A
/// row of zeros stays zeros. The tensors are in the pool of `home`.
kernels::EightBitTensors quantize_eight_bit(const Tensor& values, const Stream& home);

/// Quantizes `values`, f32 on the host, to 4 bits with quantized magnitudes
/// (kernels/quantized/quantization.h). Ties round to the lower value. A block of zeros stays zeros.
/// The offset is the mean magnitude. The tensors are in the pool of `home`.
kernels::FourBitTensors quantize_four_bit(const Tensor& values, kernels::FourBitType type,
                                          const Stream& home);

/// Quantizes `values`, f32 (rows, columns) on the host, to MXFP4
/// (kernels/quantized/quantization.h). The scale is the power of two of the block's largest
/// magnitude, divided by 4. Values above 6 scales become 6; others round to nearest, ties to the
/// even code. A block with a NaN or an infinity becomes NaN. The tensors are in the pool of `home`.
/// Throws DataError if the columns are not a multiple of a block. Source: the specification, 6.3.
kernels::MicroScalingTensors quantize_micro_scaling(const Tensor& values, const Stream& home);

}  // namespace hybrid_trainer
