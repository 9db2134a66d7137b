#include "src/trainer/planning/device_memory.h"

#include "src/core/cuda_runtime.h"
#include "src/core/messages.h"

namespace hybrid_trainer {

namespace {

bool is_cuda(Device device) { return device.type == DeviceType::kCuda && !device.simulated; }

std::size_t free_bytes(Device device) { return cuda_runtime().properties(device.index).free_bytes; }

}  // namespace

std::size_t plannable_device_bytes(Device device) {
  prepare_device(Stream(make_device_pool(device)));
  const std::size_t free = free_bytes(device);
  return free - std::min(free, kDeviceMargin);
}

std::string margin_warning(const std::optional<std::size_t>& budget, Device device) {
  if (!budget || !is_cuda(device)) return "";
  const std::size_t free = free_bytes(device), left = free - std::min(free, *budget);
  if (left >= kDeviceMargin) return "";
  return concat("memory.device_budget leaves ", units::bytes(left), " of the ", units::bytes(free),
                " that ", name_of(device), " has free; CUDA and its libraries may take up to ",
                units::bytes(kDeviceMargin),
                " more, so lower the budget if the run runs out of memory");
}

void prepare_device(const Stream& stream, const kernels::ProductRun& run) {
  if (is_cuda(stream.device())) kernels::prepare_products(run, stream);
}

void reserve_device_memory(const HybridTrainerConfig& config, const Stream& stream,
                           const std::string& hint, const ModelRegistry& registry,
                           SimulatedRank rank) {
  const Device device = stream.device();
  if (!is_cuda(device)) return;
  const std::size_t need =
      simulate_memory(config, device, SimulatedPhases::kAll, registry, rank).device_bytes;
  const std::size_t free = free_bytes(device);
  if (!config.device_budget() && need + kDeviceMargin / 2 > free) {
    throw OutOfMemory(concat("device memory: the run needs ", units::bytes(need), " plus up to ",
                             units::bytes(kDeviceMargin), " for CUDA's libraries, but ",
                             name_of(device), " has ", units::bytes(free), " free; try ", hint),
                      need, free);
  }
  stream.pool()->reserve(need, "the parts of one step");
}

}  // namespace hybrid_trainer
