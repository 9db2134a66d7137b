#pragma once

// CPU version of the product's header of this name, which it replaces on the include path.

#include <functional>
#include <string>
#include <tuple>
#include <type_traits>
#include <vector>

#include "hybrid_trainer/core/error.h"
#include "kernels/backend/backend.h"
#include "kernels/backend/launch.h"
#include "tests/emulation/device_code.h"
#include "tests/emulation/emulated_device.h"

namespace hybrid_trainer::emulation {

/// Enqueues the launch, whose arguments contain `pointers`, on the stream. Returns the error or "".
std::string enqueue_launch(CUstream_st* stream, const char* name, const kernels::cuda::Grid& grid,
                           const std::vector<const void*>& pointers, std::function<void()> body);

template <class T>
void add_pointer(std::vector<const void*>&, const T&) {}
template <class T>
void add_pointer(std::vector<const void*>& pointers, T* pointer) {
  pointers.push_back(pointer);
}

}  // namespace hybrid_trainer::emulation

namespace hybrid_trainer::kernels::cuda {

template <class T>
T* dynamic_shared() {
  return static_cast<T*>(emulation::shared_memory());
}

inline std::size_t max_shared_bytes(const Stream& stream) {
  return simulated(stream) ? 0 : emulation::device().shared_bytes;
}

template <class... Parameters>
void launch(const Stream& stream, const char* name, void (*kernel)(Parameters...), const Grid& grid,
            std::type_identity_t<Parameters>... arguments) {
  if (grid.x == 0 || grid.y == 0 || grid.z == 0 || simulated(stream)) return;
  const LaunchCheck check(name, stream);
  std::vector<const void*> pointers;
  (emulation::add_pointer(pointers, arguments), ...);
  const std::string answer = emulation::enqueue_launch(
      stream.native(), name, grid, pointers,
      [kernel, values = std::tuple<Parameters...>(arguments...)] { std::apply(kernel, values); });
  if (answer.empty()) return check.wait();
  check.report(grid, answer, false);
}

}  // namespace hybrid_trainer::kernels::cuda
