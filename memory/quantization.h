#pragma once

#include "kernels/quantized/quantization.h"

namespace hybrid_trainer {

/// Quantizes `values`, f32 (rows, columns) on the host, to 8 bits
/// (kernels/quantized/quantization.h) in the pool of `home`. Codes are round(x · (127 / magnitude))
/// with ties to even; the magnitude is a row's largest absolute value. A row of zeros stays zero.
kernels::EightBitTensors quantize_eight_bit(const Tensor& values, const Stream& home);

/// Quantizes `values`, f32 on the host, to 4 bits in the pool of `home`, with quantized magnitudes
/// (kernels/quantized/quantization.h), whose offset is their mean. Ties round to the lower value.
kernels::FourBitTensors quantize_four_bit(const Tensor& values, kernels::FourBitType type,
                                          const Stream& home);

/// Quantizes `values`, f32 (rows, columns) on the host, to MXFP4
/// (kernels/quantized/quantization.h). The scale of a block is a quarter of the largest power of
/// two that does not exceed the block's largest magnitude. Values above 6 · scale are clamped to
/// it; other values are rounded to the nearest code, ties to even. A block with a NaN or an
/// infinity becomes NaN. The results are in the pool of `home`. Throws DataError if a row does not
/// consist of whole blocks. Source: the OCP specification, 6.3.
kernels::MicroScalingTensors quantize_micro_scaling(const Tensor& values, const Stream& home);

}  // namespace hybrid_trainer
