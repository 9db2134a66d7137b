#pragma once

#include "hybrid_trainer/core/profile.h"
#include "hybrid_trainer/core/progress.h"
#include "kernels/check.h"

namespace hybrid_trainer::kernels {

/// Calls the CUDA backend's function, with the arguments and the stream, for what the processor's
/// backend does by other kernels; otherwise as below.
template <auto& on_cuda, class... Arguments>
void dispatch_to_cuda(const KernelCall& call, Work work, const Arguments&... arguments) {
  count_progress();
  const KernelTimer timer(call.stream, work);
#if defined(HT_WITH_CUDA)
  return on_cuda(arguments..., call.stream);
#endif
  throw Error(ExitCode::kInternal, concat(call.kernel, ": the stream is on ", name_of(call.device),
                                          ", which has no backend in this build"));
}

/// Calls the function of the backend that runs the stream's work, with the arguments and the
/// stream; the stream's profile, if any, counts the call as `work`. Both functions have the
/// signature of the public one and are declared by its type, `namespace cpu {
/// decltype(kernels::add) add; }`. HT_WITH_CUDA is set for this layer's sources only; without it
/// `on_cuda` is never called and need not exist. On a simulated device each backend takes what
/// workspace it needs and runs nothing: on_cuda in its launches, on_cpu where it allocates.
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
