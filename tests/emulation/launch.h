#pragma once

// launch and dynamic_shared of kernels/cuda/launch.cuh, for a processor.

#include <functional>
#include <tuple>

#include "tests/emulation/device_code.h"

namespace hybrid_trainer::emulation {

/// Enqueues the launch on the emulated stream.
void enqueue_launch(CUstream_st* stream, const char* name, const kernels::cuda::Grid& grid,
                    std::function<void()> body);

}  // namespace hybrid_trainer::emulation

namespace hybrid_trainer::kernels::cuda {

template <class T>
T* dynamic_shared() {
  return static_cast<T*>(emulation::shared_memory());
}

template <class... Parameters>
void launch(const Stream& stream, const char* name, void (*kernel)(Parameters...), const Grid& grid,
            std::type_identity_t<Parameters>... arguments) {
  if (grid.x == 0 || grid.y == 0 || grid.z == 0 || simulated(stream)) return;
  emulation::enqueue_launch(
      stream.native(), name, grid,
      [kernel, values = std::tuple<Parameters...>(arguments...)] { std::apply(kernel, values); });
}

}  // namespace hybrid_trainer::kernels::cuda
