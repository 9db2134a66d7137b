#pragma once

#include <cstddef>
#include <cstdint>
#include <map>
#include <mutex>
#include <string>

#include "hybrid_trainer/core/stream.h"
#include "src/core/cuda_runtime.h"

namespace hybrid_trainer::kernels::cuda {

struct Grid {
  std::int64_t x = 1, y = 1, z = 1;
  std::int64_t threads = 256;  // per block
  std::size_t shared_bytes = 0;
};

inline Grid grid_for(std::int64_t items, std::int64_t threads = 256) {
  return {.x = (items + threads - 1) / threads, .threads = threads};
}

/// Attributes a failure to the kernel that caused it, because CUDA also reports earlier failures at
/// a launch. With CUDA_LAUNCH_BLOCKING=1, waits for the stream before and after each launch, except
/// while it is recorded.
class LaunchCheck {
 public:
  /// Throws DeviceError if launches block and earlier work failed. `name` must remain valid.
  LaunchCheck(const char* name, const Stream& stream);
  /// If launches block, waits for the kernel and throws DeviceError if it fails.
  void wait() const;
  /// Throws a failed launch's DeviceError, or OutOfMemory if the device cannot load the kernel.
  [[noreturn]] void report(const Grid& grid, const std::string& answer, bool lacks_memory) const;

 private:
  const char* const name_;
  const Stream& stream_;
  const bool blocks_;
};

inline int processors_of(const Stream& stream) {
  static std::mutex mutex;
  const std::lock_guard lock(mutex);
  static auto* const all = new std::map<int, int>;
  int& count = (*all)[stream.device().index];
  if (count == 0) count = cuda_runtime().properties(stream.device().index).processors;
  return count;
}

}  // namespace hybrid_trainer::kernels::cuda
