#pragma once

#include "kernels/backend.h"

namespace hybrid_trainer::kernels {

/// bits = the bits that are set in any element of x. x: f32, of which every element is read. bits:
/// (1) i32.
void find_all_bits(Cpu, const Tensor& bits, const Tensor& x);

}  // namespace hybrid_trainer::kernels
