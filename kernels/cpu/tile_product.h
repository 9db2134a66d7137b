#pragma once

#include "kernels/cpu/product.h"

namespace hybrid_trainer::kernels::cpu {

/// Whether multiply_by_tiles takes the product: bf16 on a processor with matrix tiles, n and k
/// multiples of 32, and m too where A is transposed.
bool fits_tiles(const ProductKind& kind);

/// The product of contiguous arrays on the processor's matrix tiles (AMX). Blocks of C go to
/// whichever thread is free; each element is summed in the order of k, so that equal calls give
/// equal bits.
void multiply_by_tiles(const ProductKind& kind, const ProductArrays& arrays, const Stream& stream);

}  // namespace hybrid_trainer::kernels::cpu
