#pragma once

#include <initializer_list>

#include "hybrid_trainer/core/error.h"
#include "hybrid_trainer/core/tensor.h"
#include "src/core/process.h"
#include "src/core/profile.h"

namespace hybrid_trainer::kernels {

struct KernelCall {
  const char* kernel;
  const Stream& stream;
  Work work;
  Device device = stream.device();
};

/// An argument of a kernel, and its name in the kernel's documentation.
struct NamedTensor {
  const char* name;
  const Tensor& tensor;
};

/// Throws ShapeMismatch "KERNEL: PARTS".
template <class... Parts>
[[noreturn]] void throw_mismatch(const KernelCall& call, const Parts&... parts) {
  throw ShapeMismatch(concat(call.kernel, ": ", parts...));
}

// Each of these functions except check_rank also throws Error, "KERNEL: NAME is on cpu, but the
// stream is on cuda:0", for a tensor on another device. Call one of them for each tensor of a
// kernel. Streams of simulated devices also accept real tensors.

/// Throws ShapeMismatch "KERNEL: NAME is (8, 64), want (8, 32)".
void check_shape(const KernelCall& call, const NamedTensor& argument, const Shape& wanted);
/// Throws ShapeMismatch if the shape differs, or Error if the dtype differs.
void check_shape(const KernelCall& call, const NamedTensor& argument, const Shape& wanted,
                 DType dtype);
/// Like check_shape, but accept an undefined tensor.
void check_optional_shape(const KernelCall& call, const NamedTensor& argument, const Shape& wanted);
void check_optional_shape(const KernelCall& call, const NamedTensor& argument, const Shape& wanted,
                          DType dtype);
void check_rank(const KernelCall& call, const NamedTensor& argument, int wanted);
/// Throws ShapeMismatch if the rank differs, or Error if the dtype or the device differs.
void check_rank(const KernelCall& call, const NamedTensor& argument, int wanted, DType dtype);
void check_dtype(const KernelCall& call, const NamedTensor& argument, DType wanted);
void check_real(const KernelCall& call, const NamedTensor& argument);
/// Throws ShapeMismatch if the rank differs, or Error if the dtype is neither f32 nor bf16.
void check_real(const KernelCall& call, const NamedTensor& argument, int rank);
/// Throws ShapeMismatch or Error if any tensor differs from the first in shape or dtype.
void check_matching(const KernelCall& call, std::initializer_list<NamedTensor> arguments);
/// Like check_matching; also throws Error if the dtype is neither f32 nor bf16.
void check_matching_real(const KernelCall& call, std::initializer_list<NamedTensor> arguments);

/// Checks an optimizer's tensors: f32 of one shape, and a bf16 or undefined compute copy.
void check_update(const KernelCall& call, const NamedTensor& w, const NamedTensor& g,
                  const NamedTensor& compute_copy);

/// Calls the CUDA backend's function, for kernels that the CPU composes of other kernels.
template <auto& on_cuda, class... Arguments>
void dispatch_to_cuda(const KernelCall& call, [[maybe_unused]] const Arguments&... arguments) {
  count_progress();
  const KernelTimer timer(call.stream, call.work);
#if defined(HT_WITH_CUDA)
  return on_cuda(arguments..., call.stream);
#endif
  throw Error(ExitCode::kInternal, concat(call.kernel, ": the stream is on ", name_of(call.device),
                                          ", which has no backend in this build"));
}

/// Calls the function of the stream's backend and, if the stream has a profile, counts the call as
/// `call.work`. kernels/generated/x.h declares both functions. HT_WITH_CUDA is defined only for this
/// layer; without it, `on_cuda` need not be linked. On a simulated device, both functions only
/// allocate workspace.
template <auto& on_cpu, auto& on_cuda, class... Arguments>
void dispatch_with_workspace(const KernelCall& call, const Arguments&... arguments) {
  if (call.device.type != DeviceType::kCpu) return dispatch_to_cuda<on_cuda>(call, arguments...);
  count_progress();
  const KernelTimer timer(call.stream, call.work);
  on_cpu(arguments..., call.stream);
}

/// Like dispatch_with_workspace, for a kernel that needs no workspace on the CPU.
template <auto& on_cpu, auto& on_cuda, class... Arguments>
void dispatch(const KernelCall& call, const Arguments&... arguments) {
  const bool is_simulated_cpu = call.device.simulated && call.device.type == DeviceType::kCpu;
  if (!is_simulated_cpu) dispatch_with_workspace<on_cpu, on_cuda>(call, arguments...);
}

}  // namespace hybrid_trainer::kernels
