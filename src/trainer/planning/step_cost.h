#pragma once

#include "hybrid_trainer/core/batch.h"
#include "hybrid_trainer/memory/memory_places.h"
#include "hybrid_trainer/nn/network.h"
#include "hybrid_trainer/trainer/memory_plan.h"

namespace hybrid_trainer {

/// Returns the config without settings that affect a step other than its gradient.
HybridTrainerConfig gradient_only(HybridTrainerConfig config);

/// Measures the seconds of a batch's gradient in the precision of Full. Returns the median of five
/// runs, or of the runs that start within 0.3 seconds, after a warm-up run.
double measure_gradient(Network& network, const HybridTrainerConfig& config, const Batch& batch,
                        const Stream& stream);

/// Estimates the seconds per step from a machine's rates. For comparisons only, because it assumes
/// that transfers do not overlap with computation.
class StepCost {
 public:
  /// `as_given`: the config's memory need without options that move activations.
  StepCost(const HybridTrainerConfig& config, Device device, const MemoryNeed& as_given,
           const StepRates& rates, const ModelRegistry& registry);
  double seconds(const HybridTrainerConfig& config) const;
  double update_seconds(const HybridTrainerConfig& config) const;

 private:
  Network& network_of(const HybridTrainerConfig& config) const;
  double recomputation(const MemoryConfig& memory, std::int64_t time) const;
  /// Returns the seconds of forward, backward, and recomputation.
  double products(const HybridTrainerConfig& config) const;
  double state_bytes(const HybridTrainerConfig& config) const {
    return state_bytes_ * static_cast<double>(config.optimizer.state_bits) / state_bits_;
  }
  double placements(const HybridTrainerConfig& config) const;
  /// Return the seconds to move bytes to `placement` ("device", "host", "file") and back.
  double there(double bytes, const std::string& placement) const {
    if (placement == "host") return 2 * bytes / rates_.copy_bytes_per_second;
    return placement == "file" ? bytes / rates_.write_bytes_per_second : 0;
  }
  double back(double bytes, const std::string& placement) const {
    if (placement == "host") return 2 * bytes / rates_.copy_bytes_per_second;
    return placement == "file" ? bytes / rates_.read_bytes_per_second : 0;
  }

  /// Returns the seconds to transfer offloaded weights for `passes` passes and an update.
  double weight_transfers(const MemoryConfig& memory, double passes) const;

  StepRates rates_;
  Stream simulated_stream_;
  std::unique_ptr<Network> model_;  // simulated
  /// Simulated network, with settings of recomputed parts, which all compared configs share.
  mutable std::unique_ptr<Network> with_parts_;
  const ModelRegistry& registry_;
  std::int64_t activation_bits_;
  double weight_bytes_, state_bytes_, activation_bytes_, compute_bytes_, state_bits_;
  std::vector<std::pair<std::string, double>> weights_;  // matrices and tables: name, elements
  double update_flops_ = 0;
};

struct RankStepTime {
  double computing = 0;  // forward and backward of the rank's micro-batches, and the update
  double sending = 0;    // time in which the rank's transfers occupy the link
  double exposed = 0;    // part of `sending` that does not overlap with computation
  double seconds() const { return computing + exposed; }
};

/// Estimates the seconds of a step for ranks as fast as this machine, with links of this bandwidth.
/// Without distributed.overlap, all transfers are exposed. With it, the transfer of the first group
/// that forward reads is still exposed, and distributed.zero determines which other transfers
/// overlap with which computation:
///   0 and 1: gradients with the last backward pass
///   2: gradients with all passes after the first forward pass
///   1 and 2: weights with the next forward pass
///   3: all transfers with all passes
RankStepTime estimate_rank_step(const HybridTrainerConfig& config, Device device, int ranks,
                                const StepTransfer& transfer, const StepRates& rates,
                                double link_bytes_per_second,
                                const ModelRegistry& registry = model_families());

}  // namespace hybrid_trainer
