#pragma once

#include "hybrid_trainer/kernels/micro_scaling.h"

namespace hybrid_trainer {

/// `values`, f32 (rows, columns) on the host, in MXFP4 (kernels/micro_scaling.h): the power of two is
/// that of the block's largest magnitude, divided by 4; numbers beyond 6 of them become 6, others the
/// nearest, on a bound the one with an even code. A block with a NaN or an infinity becomes NaN. The
/// tensors lie in the pool of `home`. Throws DataError where the columns are no multiple of a block.
/// Source: the specification's section 6.3.
kernels::MicroScalingTensors quantize_micro_scaling(const Tensor& values, const Stream& home);

}  // namespace hybrid_trainer
