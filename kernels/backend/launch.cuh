// Kernel launches and dynamic shared memory, included by every kernel file. Without nvcc, another
// header of this name, earlier on the include path, provides these functions and CUDA C++'s names.

#pragma once

#include <cuda_runtime.h>
#include <type_traits>

#include "hybrid_trainer/core/error.h"
#include "kernels/backend/backend.h"
#include "kernels/backend/launch.h"
#include "src/core/cuda_runtime.h"

namespace hybrid_trainer::kernels::cuda {

/// Returns the dynamic shared memory of the block, aligned to 128 bytes.
template <class T>
__device__ T* dynamic_shared() {
  extern __shared__ __align__(128) unsigned char bytes[];
  return reinterpret_cast<T*>(bytes);
}

/// Returns the maximum shared memory of a block on the stream's device; 0 in a simulated run.
inline std::size_t max_shared_bytes(const Stream& stream) {
  int bytes = 0;
  if (simulated(stream)) return 0;
  const int device = stream.device().index;
  if (cudaDeviceGetAttribute(&bytes, cudaDevAttrMaxSharedMemoryPerBlockOptin, device) !=
      cudaSuccess) {
    cudaGetLastError();
  }
  return static_cast<std::size_t>(bytes);
}

/// Enqueues kernel(arguments...) on the stream. Throws DeviceError, which names kernel and grid or
/// reports that earlier work failed, or OutOfMemory if the device cannot load the kernel.
template <class... Parameters>
void launch(const Stream& stream, const char* name, void (*kernel)(Parameters...), const Grid& grid,
            std::type_identity_t<Parameters>... arguments) {
  if (grid.x == 0 || grid.y == 0 || grid.z == 0 || simulated(stream)) return;
  const LaunchCheck check(name, stream);
  // The default limit is 48 KiB per block, including the kernel's static shared memory.
  constexpr std::size_t kWithoutAsking = 32 << 10;
  cudaError_t answer = cudaSuccess;
  if (grid.shared_bytes > kWithoutAsking) {
    answer = cudaFuncSetAttribute(reinterpret_cast<const void*>(kernel),
                                  cudaFuncAttributeMaxDynamicSharedMemorySize,
                                  static_cast<int>(grid.shared_bytes));
  }
  if (answer == cudaSuccess) {
    const auto size = [](std::int64_t n) { return static_cast<unsigned int>(n); };
    void* pointers[] = {&arguments...};
    answer = cudaLaunchKernel(
        reinterpret_cast<const void*>(kernel), dim3(size(grid.x), size(grid.y), size(grid.z)),
        dim3(size(grid.threads)), pointers, grid.shared_bytes, stream.native());
  }
  if (answer == cudaSuccess) return check.wait();
  check.report(grid, concat(cudaGetErrorName(answer), ": ", cudaGetErrorString(answer)),
               answer == cudaErrorMemoryAllocation);
}

}  // namespace hybrid_trainer::kernels::cuda
