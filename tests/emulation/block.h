#pragma once

#include <cstdint>
#include <functional>
#include <string>

#include "kernels/backend/launch.cuh"

namespace hybrid_trainer::emulation {

/// Order of threads in a block and blocks in a launch. A result that depends on it is a race.
enum class Order { kForward, kBackward, kShuffled };
void set_order(Order order, unsigned int seed = 1);

/// Runs `body` once for each thread of each block of the grid. Rethrows a thread's exception, and
/// throws if threads wait for others that never arrive.
void run_grid(const char* name, const kernels::cuda::Grid& grid, const std::function<void()>& body);

/// Number of threads in all launches of a kernel so far.
std::int64_t threads_run(const std::string& name);

}  // namespace hybrid_trainer::emulation
