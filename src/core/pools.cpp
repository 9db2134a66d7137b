#include "hybrid_trainer/core/pools.h"

#include "hybrid_trainer/core/machine_memory.h"

namespace hybrid_trainer {

std::shared_ptr<MemoryPool> make_device_pool(Device device,
                                             std::optional<std::size_t> budget_bytes) {
  if (device.simulated) return MemoryPool::create("device", budget_bytes, simulated_memory(device));
  if (device.type == DeviceType::kCpu) return MemoryPool::create("device", budget_bytes);
  return MemoryPool::create("device", budget_bytes, cuda_memory(device));
}

std::shared_ptr<MemoryPool> make_host_pool(Device device, std::optional<std::size_t> budget_bytes) {
  const bool pinned = device.type == DeviceType::kCuda;
  if (device.simulated)
    return MemoryPool::create("host", budget_bytes, simulated_memory({}, pinned));
  if (!pinned) return MemoryPool::create("host", budget_bytes);
  return MemoryPool::create("host", budget_bytes,
                            pinned_memory(machine_memory().available_bytes / 2));
}

std::shared_ptr<MemoryPool> make_file_pool(Device device, const std::string& folder,
                                           const char* key) {
  return MemoryPool::create("scratch file in " + folder, {},
                            device.simulated ? simulated_memory({}) : file_memory(folder, key));
}

}  // namespace hybrid_trainer
