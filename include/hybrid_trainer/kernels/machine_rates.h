#pragma once

#include "hybrid_trainer/core/stream.h"
#include "hybrid_trainer/core/tensor.h"

namespace hybrid_trainer::kernels {

/// The highest rate of matrix products that this machine reaches now, in floating-point operations
/// a second (2·M·N·K for a product), over the shapes and layouts of a GPT-2 step. About half a
/// second. f32 or bf16; bf16 is what matmul makes of bf16 inputs, also where the processor has no
/// such product.
double measure_product_rate(DType inputs, const Stream& stream);

/// Bytes read plus bytes written a second by a copy between arrays much larger than the caches.
double measure_copy_rate(const Stream& stream);

/// Bytes a second at which arrays much larger than the caches can be read.
double measure_read_rate(const Stream& stream);

}  // namespace hybrid_trainer::kernels
