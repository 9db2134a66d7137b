#include <cstdlib>
#include <string_view>

#include "hybrid_trainer/core/error.h"
#include "kernels/backend/launch.h"
#include "src/core/cuda_runtime.h"

namespace hybrid_trainer::kernels::cuda {

namespace {

bool launches_block(const Stream& stream) {
  const char* const wish = std::getenv("CUDA_LAUNCH_BLOCKING");
  return wish != nullptr && std::string_view(wish) == "1" &&
         !cuda_runtime().captures(stream.native());
}

/// Waits for the stream. Returns the error of its work, or "" if it succeeded.
std::string failure_after(const Stream& stream) {
  try {
    stream.synchronize();
  } catch (const DeviceError&) {
    const std::string failure = cuda_runtime().failure();
    if (failure.empty()) throw;
    return failure;
  }
  return "";
}

DeviceError failure_of(const char* name, const std::string& failure) {
  return DeviceError(concat("CUDA: ", name, " failed with ", failure,
                            "; find the cause with compute-sanitizer, or use --device cpu"));
}

}  // namespace

LaunchCheck::LaunchCheck(const char* name, const Stream& stream)
    : name_(name), stream_(stream), blocks_(launches_block(stream)) {
  if (!blocks_) return;
  const std::string failure = failure_after(stream);
  if (!failure.empty()) throw earlier_failure(failure, concat("the launch of ", name));
}

void LaunchCheck::wait() const {
  if (!blocks_) return;
  const std::string failure = failure_after(stream_);
  if (!failure.empty()) throw failure_of(name_, failure);
}

void LaunchCheck::report(const Grid& grid, const std::string& answer, bool lacks_memory) const {
  const bool is_of_work = cuda_runtime().failure() == answer;
  if (is_of_work && blocks_) throw failure_of(name_, answer);
  if (is_of_work) throw earlier_failure(answer, concat("the launch of ", name_));
  const std::string what =
      concat("CUDA: launch of ", name_, " with ", grid.x, "x", grid.y, "x", grid.z, " blocks of ",
             grid.threads, " threads and ", grid.shared_bytes,
             " bytes of shared memory failed with ", answer);
  if (lacks_memory) throw_out_of_device_memory(what, stream_.device().index);
  throw DeviceError(concat(what, "; --device cpu does not use CUDA"));
}

}  // namespace hybrid_trainer::kernels::cuda
