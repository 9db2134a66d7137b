#pragma once

#include <utility>

#include "hybrid_trainer/core/error.h"
#include "hybrid_trainer/core/profile.h"
#include "hybrid_trainer/core/tensor.h"

namespace hybrid_trainer::kernels {

/// Tag of the processor's overloads, with the stream whose pool provides their workspace.
struct Cpu {
  const Stream& stream;
  /// Uninitialised f32 workspace; from the second step on, the pool reuses a block for it.
  Tensor workspace(std::int64_t elements) const {
    return Tensor::empty({elements}, DType::kF32, MemoryKind::kWorkspace, stream);
  }
};

/// Tag of the CUDA overloads, which enqueue on the stream. On a simulated device they allocate
/// their workspace and enqueue nothing.
struct Cuda {
  const Stream& stream;
  bool simulated() const { return stream.native() == nullptr; }
  /// Uninitialised workspace of any type. It may be freed once the calls that use it are enqueued:
  /// stream order protects it.
  Tensor workspace(std::int64_t bytes) const {
    return Tensor::empty({bytes}, DType::kU8, MemoryKind::kWorkspace, stream);
  }
};

/// Calls `function` with the tag of the backend that runs the stream's work; the stream's profile,
/// if any, counts the call as `work`. HT_WITH_CUDA is set for this layer's sources only; without it
/// the CUDA overloads are declared and never used.
template <class Function>
decltype(auto) visit_backend(const Stream& stream, Work work, Function&& function) {
  const KernelTimer timer(stream, work);
  switch (stream.device().type) {
    case DeviceType::kCpu:
      return std::forward<Function>(function)(Cpu{stream});
#if defined(HT_WITH_CUDA)
    case DeviceType::kCuda:
    case DeviceType::kSimulated:
      return std::forward<Function>(function)(Cuda{stream});
#endif
    default:
      break;
  }
  throw Error(ExitCode::kInternal, "kernels: the stream's device has no backend in this build");
}

/// Calls `function` with a value of the C++ type of a real dtype. Throws Error for other dtypes.
template <class Function>
decltype(auto) visit_real(DType dtype, Function&& function) {
  if (dtype == DType::kF32) return std::forward<Function>(function)(float{});
  if (dtype == DType::kBF16) return std::forward<Function>(function)(BFloat16{});
  throw Error(ExitCode::kInternal,
              concat("kernels: got dtype ", name_of(dtype), ", want f32 or bf16"));
}

}  // namespace hybrid_trainer::kernels
