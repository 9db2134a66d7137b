#pragma once

#include "kernels/backend.h"

namespace hybrid_trainer::kernels {

/// Reads every element of an f32 tensor; returns the bits that are set in any of them.
std::uint32_t wait_for_all_bits(Cpu cpu, const Tensor& x);

}  // namespace hybrid_trainer::kernels
