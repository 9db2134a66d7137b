#pragma once

#include "hybrid_trainer/synthetic/synthetic_set.h"
#include "hybrid_trainer/tasks/network_data.h"

namespace hybrid_trainer {

/// A set of examples that the seed draws. Training has number 0 and on, validation numbers that no run
/// trains on.
class SyntheticData final : public NetworkData {
 public:
  /// The mean loss of the whole is the sum of the set's losses times these weights.
  SyntheticData(std::unique_ptr<const SyntheticSet> set, std::string description,
                std::vector<double> weights, std::int64_t held_out)
      : set_(std::move(set)),
        description_(std::move(description)),
        weights_(std::move(weights)),
        held_out_(held_out) {}
  std::string description() const override { return description_; }
  std::unique_ptr<const BatchSource> batches(const HybridTrainerConfig& config) const override;
  std::unique_ptr<EvaluationBatches> evaluation(const HybridTrainerConfig& config,
                                                const Stream& stream) const override;
  std::optional<double> best_loss(const HybridTrainerConfig& config) const override;

 private:
  std::shared_ptr<const SyntheticSet> set_;
  std::string description_;
  std::vector<double> weights_;
  std::int64_t held_out_;  // examples
};

/// Scenes that the seed draws, or array_data where source.data is given.
std::unique_ptr<NetworkData> trident_data(const NetworkDataSource& source);

}  // namespace hybrid_trainer
