#pragma once

#include <memory>

#include "hybrid_trainer/memory/device_map.h"
#include "hybrid_trainer/nn/network.h"
#include "hybrid_trainer/planning/memory_plan.h"

namespace hybrid_trainer {

/// Seconds that one step of a config takes by a machine's rates: its products, its update, and what
/// the options of the `memory` group add. For comparisons; transfers count as if nothing hid them.
class StepCost {
 public:
  /// `as_given`: what the config takes with no option that moves its activations.
  StepCost(const HybridTrainerConfig& config, Device device, const MemoryNeed& as_given,
           const StepRates& rates, const ModelRegistry& registry);
  double seconds(const HybridTrainerConfig& config) const;
  /// Of these, the update's.
  double update_seconds(const HybridTrainerConfig& config) const;

 private:
  /// That the config's parts are set in.
  Network& network_of(const HybridTrainerConfig& config) const;
  double computed_again(const MemoryConfig& memory, std::int64_t time) const;
  /// Of forward and backward, and of what backward computes again.
  double products(const HybridTrainerConfig& config) const;
  double state_bytes(const HybridTrainerConfig& config) const;
  double placements(const HybridTrainerConfig& config) const;
  /// To `placement` ("device", "host", "file") and back.
  double there(double bytes, const std::string& placement) const;
  double back(double bytes, const std::string& placement) const;

  /// Of weights that are elsewhere, for `passes` over them and an update.
  double weight_transfers(const MemoryConfig& memory, double passes) const;

  StepRates rates_;
  Stream nowhere_;
  std::unique_ptr<Network> model_;  // simulated
  /// Likewise, of configs whose parts say what is computed again: all that are compared have the same.
  mutable std::unique_ptr<Network> with_parts_;
  const ModelRegistry& registry_;
  std::int64_t activation_bits_;
  double weight_bytes_, state_bytes_, activation_bytes_, compute_bytes_, state_bits_;
  std::vector<std::pair<std::string, double>> weights_;  // matrices and tables: name, elements
  double update_flops_ = 0;
};

}  // namespace hybrid_trainer
