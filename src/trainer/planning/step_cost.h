#pragma once

#include "hybrid_trainer/config/hybrid_trainer_config.h"
#include "hybrid_trainer/core/batch.h"
#include "hybrid_trainer/memory/memory_places.h"
#include "hybrid_trainer/nn/network.h"
#include "hybrid_trainer/trainer/memory_plan.h"

namespace hybrid_trainer {

/// The config without what a step does beside its gradient: for measuring how long that takes.
HybridTrainerConfig gradient_alone(HybridTrainerConfig config);

/// Seconds that the gradient of a batch takes in the precision of Full: the median of five, or of as many as
/// begin in 0.3 seconds, behind one that is not counted.
double measure_gradient(Network& network, const HybridTrainerConfig& config, const Batch& batch,
                        const Stream& stream);

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
  double state_bytes(const HybridTrainerConfig& config) const {
    return state_bytes_ * static_cast<double>(config.optimizer.state_bits) / state_bits_;
  }
  double placements(const HybridTrainerConfig& config) const;
  /// To `placement` ("device", "host", "file") and back.
  double there(double bytes, const std::string& placement) const {
    if (placement == "host") return 2 * bytes / rates_.copy_bytes_per_second;
    return placement == "file" ? bytes / rates_.write_bytes_per_second : 0;
  }
  double back(double bytes, const std::string& placement) const {
    if (placement == "host") return 2 * bytes / rates_.copy_bytes_per_second;
    return placement == "file" ? bytes / rates_.read_bytes_per_second : 0;
  }

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

/// Seconds of one rank's Full step.
struct RankStepTime {
  double computing = 0;  // forward and backward of its micro-batches, and its update
  double sending = 0;    // in which what it sends and receives keeps its link busy
  double exposed = 0;    // of these, what nothing that is computed hides
  double seconds() const { return computing + exposed; }
};

/// An estimate for ranks that are as fast as this machine was measured, all over links of as many
/// bytes a second. Without distributed.overlap all is exposed; else what does not fit beside the
/// computing where it may be sent: with zero 0 and 1 gradients beside a rank's last backward pass,
/// with 2 beside all of them, with 1 and 2 the weights beside the next forward pass, with 3 all of it
/// beside both. And, whatever the link, the group of weights that backward completes last, and the
/// one that forward waits for first.
RankStepTime estimate_rank_step(const HybridTrainerConfig& config, Device device, int ranks,
                                const StepTransfer& transfer, const StepRates& rates,
                                double link_bytes_per_second,
                                const ModelRegistry& registry = model_families());

}  // namespace hybrid_trainer
