#pragma once

#include <map>
#include <mutex>

#include "hybrid_trainer/core/cuda_runtime.h"
#include "hybrid_trainer/core/stream.h"

namespace hybrid_trainer::kernels::cuda {

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
