#include "hybrid_trainer/optim/speculative_optimizer.h"

#include "src/optim/experiments/selective_updates.h"

namespace hybrid_trainer {

std::unique_ptr<SpeculativeOptimizer> make_speculative_optimizer(
    const OptimizerConfig& config, const std::vector<Parameter*>& parameters,
    const SpeculationSettings& settings, const Stream& device,
    const std::shared_ptr<MemoryPool>& host, const Stream& home) {
  const SpeculationSetup setup{config, parameters, settings, device, host, home};
  if (settings.gradient_bits == 16) return std::make_unique<RoundedUpdates>(setup);
  if (settings.device_side == "selective") return std::make_unique<SelectiveUpdates>(setup);
  return std::make_unique<ForecastUpdates>(setup);
}

}  // namespace hybrid_trainer
