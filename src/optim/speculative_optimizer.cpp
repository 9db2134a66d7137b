#include "hybrid_trainer/optim/speculative_optimizer.h"

#include "src/optim/delayed_updates.h"
#include "src/optim/experiments/selective_updates.h"

namespace hybrid_trainer {

std::unique_ptr<SpeculativeOptimizer> make_speculative_optimizer(
    const OptimizerConfig& config, const std::vector<Parameter*>& parameters,
    const SpeculationSettings& settings, const Stream& device,
    const std::shared_ptr<MemoryPool>& host, const Stream& home) {
  const auto make = [&]<class Updates>() -> std::unique_ptr<SpeculativeOptimizer> {
    return std::make_unique<Updates>(config, parameters, settings, device, host, home);
  };
  if (settings.gradient_bits == 16) return make.operator()<RoundedUpdates>();
  if (settings.device_side == "selective") return make.operator()<SelectiveUpdates>();
  return make.operator()<ForecastUpdates>();
}

}  // namespace hybrid_trainer
