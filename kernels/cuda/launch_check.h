#pragma once

#include <string>

#include "kernels/cuda/grid.h"

namespace hybrid_trainer::kernels::cuda {

/// Finds whose failure it is that is seen at a launch. CUDA answers a launch with the failure of
/// earlier work too. With CUDA_LAUNCH_BLOCKING=1 in the environment, which CUDA itself knows, each
/// launch waits for the stream before and after, so that the kernel that fails is named. While a
/// stream is recorded nothing waits.
class LaunchCheck {
 public:
  /// Throws DeviceError if launches block and earlier work has failed. `name` is kept by address.
  LaunchCheck(const char* name, const Stream& stream);
  /// Throws DeviceError if launches block and the kernel fails.
  void wait() const;
  /// Throws the DeviceError of a launch that is answered with an error, or OutOfMemory where the
  /// device lacks the memory to load the kernel in.
  [[noreturn]] void report(const Grid& grid, const std::string& answer, bool lacks_memory) const;

 private:
  const char* const name_;
  const Stream& stream_;
  const bool blocks_;
};

}  // namespace hybrid_trainer::kernels::cuda
