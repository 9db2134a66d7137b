#include "src/planning/chosen_device_map.h"

#include <algorithm>

#include "hybrid_trainer/core/pools.h"
#include "hybrid_trainer/planning/memory_simulation.h"

namespace hybrid_trainer {
namespace {

std::string map_of(const std::vector<std::string>& parts, std::int64_t on_device,
                   std::int64_t on_host) {
  if (on_device == std::ssize(parts)) return "*=device";
  std::string text;
  const auto begin = parts.begin();
  std::for_each(begin, begin + on_device, [&](const auto& part) { text += part + "=device,"; });
  const bool to_file = on_device + on_host < std::ssize(parts);
  if (to_file)
    std::for_each(begin + on_device, begin + on_device + on_host,
                  [&](const auto& part) { text += part + "=host,"; });
  return text + (to_file ? "*=file" : "*=host");
}

/// The largest number up to `most` that fits, where fewer fit if more do; 0 if none does.
template <class Fits>
std::int64_t largest(std::int64_t most, const Fits& fits) {
  std::int64_t least = 0;
  while (least < most) {
    const std::int64_t middle = (least + most + 1) / 2;
    if (fits(middle)) {
      least = middle;
    } else {
      most = middle - 1;
    }
  }
  return least;
}

}  // namespace

HybridTrainerConfig with_device_map(const HybridTrainerConfig& config, Device device,
                                    const MemoryBudgets& budgets, const ModelRegistry& registry) {
  if (config.memory.device_map != "auto") return config;
  HybridTrainerConfig chosen = config;
  const Stream nowhere(make_device_pool({device.type, device.index, true}));
  const std::vector<std::string> parts = make_network(config.model, 0, nowhere, registry)->parts();
  const auto need = [&](std::int64_t on_device, std::int64_t on_host) {
    chosen.memory.device_map = map_of(parts, on_device, on_host);
    HybridTrainerConfig unlimited = chosen;
    unlimited.memory.host_budget = {};
    return simulate_memory(unlimited, device, SimulatedPhases::kUpdates, registry);
  };
  const std::int64_t all = std::ssize(parts);
  std::int64_t on_device = largest(all, [&](std::int64_t count) {
    return !budgets.device || need(count, all - count).device_bytes <= *budgets.device;
  });
  const std::int64_t on_host = largest(all - on_device, [&](std::int64_t count) {
    return !budgets.host || need(on_device, count).host_bytes <= *budgets.host;
  });
  // What a file is read ahead into takes of the device too.
  while (on_device > 0 && budgets.device && need(on_device, on_host).device_bytes > *budgets.device)
    --on_device;
  chosen.memory.device_map = map_of(parts, on_device, on_host);
  return chosen;
}

}  // namespace hybrid_trainer
