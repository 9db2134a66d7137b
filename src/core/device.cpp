#include "hybrid_trainer/core/device.h"

#include <algorithm>
#include <charconv>
#include <optional>

#include "src/core/cuda_runtime.h"

namespace hybrid_trainer {

namespace {

constexpr std::string_view kCudaPrefix = "cuda:";

std::optional<int> cuda_index(const std::string& name) {
  if (!name.starts_with(kCudaPrefix)) return {};
  int index = 0;
  const char* const end = name.data() + name.size();
  const auto result = std::from_chars(name.data() + kCudaPrefix.size(), end, index);
  if (result.ec != std::errc{} || result.ptr != end || index < 0) return {};
  return index;
}

Device cuda_device(int index) {
  const int count = cuda_runtime().device_count();
  if (index < count) return {DeviceType::kCuda, index};
  throw DeviceError(concat("device: got cuda:", index, ", this machine has ", count,
                           count == 1 ? " CUDA device, cuda:0" : " CUDA devices, from cuda:0 on",
                           "; `hybrid doctor` lists them"));
}

}  // namespace

std::string name_of(Device device) {
  const std::string name =
      device.type == DeviceType::kCpu ? "cpu" : concat(kCudaPrefix, device.index);
  return device.simulated ? "simulated " + name : name;
}

std::string hardware_name_of(Device device) {
  return device.type == DeviceType::kCpu ? "cpu" : cuda_runtime().properties(device.index).name;
}

Device find_device(const std::string& name, int unnamed) {
  if (name == "cpu" || (name == "auto" && find_cuda().runtime == nullptr)) return {};
  if (name == "auto" || name == "cuda")
    return cuda_device(unnamed % std::max(1, cuda_runtime().device_count()));
  if (const auto index = cuda_index(name)) return cuda_device(*index);
  throw ConfigError({concat("device: got \"", name, "\", want cpu, cuda, cuda:N or auto")});
}

bool is_device_name(const std::string& name) {
  return name == "cpu" || name == "auto" || name == "cuda" || cuda_index(name).has_value();
}

DeviceError earlier_failure(const std::string& failure, const std::string& detected_at) {
  return DeviceError(concat("CUDA: an earlier kernel or copy failed with ", failure,
                            ", detected at ", detected_at,
                            "; set CUDA_LAUNCH_BLOCKING=1 to find the kernel"));
}

CudaRuntime& cuda_runtime() {
  const CudaLookup& found = find_cuda();
  if (found.runtime == nullptr) throw DeviceError(found.problem);
  return *found.runtime;
}

}  // namespace hybrid_trainer
