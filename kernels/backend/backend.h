#pragma once

#include "hybrid_trainer/core/error.h"
#include "hybrid_trainer/core/tensor.h"

namespace hybrid_trainer::kernels {

/// Returns uninitialized memory for one call of a kernel. The tensor may be freed as soon as its
/// work is enqueued, because stream order protects the memory.
inline Tensor empty_workspace(std::int64_t elements, DType dtype, const Stream& stream) {
  return Tensor::empty({elements}, dtype, MemoryKind::kWorkspace, stream);
}

/// Returns whether the device is simulated: kernels then only allocate their workspace.
inline bool simulated(const Stream& stream) { return stream.device().simulated; }

/// Returns the elements of a tensor; null if it is undefined.
template <class T>
T* optional_data(const Tensor& tensor) {
  return tensor ? tensor.data<T>() : nullptr;
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
