#pragma once

#include <cstddef>
#include <cstdint>
#include <map>
#include <mutex>
#include <string>

#include "hybrid_trainer/core/stream.h"
#include "src/core/cuda_runtime.h"

namespace hybrid_trainer::kernels::cuda {

/// Blocks of one launch, threads in each, and the dynamic shared memory of a block.
struct Grid {
  unsigned int x = 1;
  unsigned int y = 1;
  unsigned int z = 1;
  unsigned int threads = 256;
  std::size_t shared_bytes = 0;
};

/// Grid with one thread per item.
inline Grid grid_for(std::int64_t items, unsigned int threads = 256) {
  return {.x = static_cast<unsigned int>((items + threads - 1) / threads), .threads = threads};
}

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

/// Multiprocessors of the stream's device.
inline int processors_of(const Stream& stream) {
  static std::mutex mutex;
  const std::lock_guard lock(mutex);
  static auto* const all = new std::map<int, int>;
  int& count = (*all)[stream.device().index];
  if (count == 0) count = cuda_runtime().properties(stream.device().index).processors;
  return count;
}

}  // namespace hybrid_trainer::kernels::cuda
