#pragma once

#include <initializer_list>

#include "hybrid_trainer/core/error.h"
#include "hybrid_trainer/core/tensor.h"
#include "src/core/process.h"
#include "src/core/profile.h"

namespace hybrid_trainer::kernels {

/// What the checks of a kernel's arguments are about.
struct KernelCall {
  const char* kernel;
  const Stream& stream;
  Device device = stream.device();
};

/// A kernel's argument under the name that its documentation uses.
struct NamedTensor {
  const char* name;
  const Tensor& tensor;
};

// Each but check_rank also throws Error, "KERNEL: NAME is on cpu, the stream on cuda:0", where a
// defined tensor is not on the stream's device; a simulated device takes a real one's tensors too.
// So of each tensor the shape or the dtype is checked.

/// Throws ShapeMismatch "KERNEL: NAME is (8, 64), want (8, 32)".
void check_shape(const KernelCall& call, const NamedTensor& argument, const Shape& wanted);
/// Throws ShapeMismatch or Error if shape or dtype differs.
void check_shape(const KernelCall& call, const NamedTensor& argument, const Shape& wanted,
                 DType dtype);
/// Like check_shape, but accepts an undefined tensor.
void check_optional_shape(const KernelCall& call, const NamedTensor& argument, const Shape& wanted);
/// Throws ShapeMismatch if the rank differs.
void check_rank(const KernelCall& call, const NamedTensor& argument, int wanted);
/// Throws Error if the dtype differs.
void check_dtype(const KernelCall& call, const NamedTensor& argument, DType wanted);
/// Throws Error if the dtype is neither f32 nor bf16.
void check_real(const KernelCall& call, const NamedTensor& argument);
/// Throws ShapeMismatch or Error if the rank differs, or the dtype is neither f32 nor bf16.
void check_real(const KernelCall& call, const NamedTensor& argument, int rank);
/// Throws ShapeMismatch or Error if one differs from the first in shape or dtype.
void check_alike(const KernelCall& call, std::initializer_list<NamedTensor> arguments);
/// Like check_alike, for f32 or bf16 alone.
void check_alike_real(const KernelCall& call, std::initializer_list<NamedTensor> arguments);

/// Checks what an optimizer writes to and its gradient: f32, of one shape; the compute copy is bf16, or
/// undefined.
void check_update(const KernelCall& call, const NamedTensor& w, const NamedTensor& g,
                  const NamedTensor& compute_copy);

/// Calls the CUDA backend's function, with the arguments and the stream, for what the processor's
/// backend does by other kernels; otherwise as below.
template <auto& on_cuda, class... Arguments>
void dispatch_to_cuda(const KernelCall& call, Work work,
                      [[maybe_unused]] const Arguments&... arguments) {
  count_progress();
  const KernelTimer timer(call.stream, work);
#if defined(HT_WITH_CUDA)
  return on_cuda(arguments..., call.stream);
#endif
  throw Error(ExitCode::kInternal, concat(call.kernel, ": the stream is on ", name_of(call.device),
                                          ", which has no backend in this build"));
}

/// Calls the function of the backend that runs the stream's work, with the arguments and the
/// stream; the stream's profile, if any, counts the call as `work`. kernels/generated/x.h declares both
/// functions with the signature of the contract in x.h. HT_WITH_CUDA is set for this layer's sources
/// only; without it `on_cuda` is never called and need not exist. On a simulated device each backend
/// takes what workspace it needs and runs nothing: on_cuda in its launches, on_cpu where it allocates.
template <auto& on_cpu, auto& on_cuda, class... Arguments>
void dispatch_with_workspace(const KernelCall& call, Work work, const Arguments&... arguments) {
  if (call.device.type != DeviceType::kCpu)
    return dispatch_to_cuda<on_cuda>(call, work, arguments...);
  count_progress();
  const KernelTimer timer(call.stream, work);
  on_cpu(arguments..., call.stream);
}

/// The same for a kernel that takes no workspace on a processor.
template <auto& on_cpu, auto& on_cuda, class... Arguments>
void dispatch(const KernelCall& call, Work work, const Arguments&... arguments) {
  const bool runs_nothing = call.device.simulated && call.device.type == DeviceType::kCpu;
  if (!runs_nothing) dispatch_with_workspace<on_cpu, on_cuda>(call, work, arguments...);
}

}  // namespace hybrid_trainer::kernels
