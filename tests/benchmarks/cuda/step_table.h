#pragma once

#include <cstdio>

#include "tests/benchmarks/cuda/kernel_timing.h"

namespace hybrid_trainer::benchmarks {

/// Prints each kernel of one bf16 training step: its calls, bytes and operations, its time, its
/// time at the device's limit, and the share of the limit that it reaches; then the sums. `timed`
/// describes the times, such as "measured".
void print_step_table(std::FILE* to, const KernelTimer& timer, const char* timed);

}  // namespace hybrid_trainer::benchmarks
