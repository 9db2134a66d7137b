#pragma once

#include "kernels/backend.h"

namespace hybrid_trainer::kernels {

/// bits = the bitwise or of all elements of x, each of which is read. x: f32. bits: (1) i32.
void find_all_bits(Cpu, const Tensor& bits, const Tensor& x);

}  // namespace hybrid_trainer::kernels
