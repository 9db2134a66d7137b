#pragma once

#include <cstdint>
#include <functional>
#include <string>

#include "kernels/backend/launch.cuh"

namespace hybrid_trainer::emulation {

/// The order in which a block's threads, and a launch's blocks, take turns. A kernel whose result
/// depends on it has a race.
enum class Order { kForward, kBackward, kShuffled };
void set_order(Order order, unsigned int seed = 1);

/// Runs `body` once for each thread of each block of the grid. Throws what a thread throws, and if
/// threads wait for others that never arrive.
void run_grid(const char* name, const kernels::cuda::Grid& grid, const std::function<void()>& body);

/// Threads that the launches of a kernel have had so far.
std::int64_t threads_run(const std::string& name);

}  // namespace hybrid_trainer::emulation
