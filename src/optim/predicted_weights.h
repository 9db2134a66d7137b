#pragma once

#include <span>

#include "hybrid_trainer/core/stream.h"
#include "hybrid_trainer/optim/optimizer.h"
#include "hybrid_trainer/optim/optimizer_config.h"

namespace hybrid_trainer {

class UpdatePredictor;

/// This rank's part of a gradient that ranks sum, and the settings of the update that uses the sum.
struct OwnGradient {
  std::function<Tensor(const Parameter&)> of;  // f32, in the parameter's shape
  float learning_rate = 0;
  float gradient_scale = 1;  // for clipping
};

struct WeightPrediction {
  std::string device_side;  // phases.asynchronous_gradients.device_side
  double share = 1;         // this rank's share of all micro-batches
  /// True if predicted values replace the exact values in place, because other code refers to this
  /// memory.
  bool in_same_memory = false;
};

/// Temporarily replaces exact weights by weights that include predicted updates, for which other
/// ranks have not sent their gradients yet. Predicted weights differ between ranks, because they
/// depend on the rank's gradients. A rank computes the share `share` of the micro-batches, whose
/// part of the mean gradient is O. "anticipated" uses O/share, an unbiased estimate. Controls:
/// "shared" uses O and (1 − share) of the momentum, which has less noise but is delayed; "momentum"
/// uses only the momentum; "none" does not predict. The optimizer continues from the exact weights.
class PredictedWeights {
 public:
  /// `optimizer`: adamw or muon for these parameters, with f32 state; all must outlive this object.
  PredictedWeights(const OptimizerConfig& config, std::vector<Parameter*> parameters,
                   Optimizer& optimizer, const WeightPrediction& prediction, const Stream& stream);
  /// Restores the exact weights. Predicted values that replaced them in place stay.
  ~PredictedWeights();

  bool are_in_place() const { return !others_.empty(); }
  /// Starts a prediction. Weights stay exact until predict() is called. Throws OutOfMemory.
  void begin();
  /// Sets the weights to the exact weights plus the predicted updates by `gradients`, oldest first.
  void predict(std::span<const OwnGradient> gradients);
  void end();
  /// Calls `use` while the model has exact instead of predicted weights, possibly in other memory.
  void with_exact(const std::function<void()>& use);
  /// Swaps the exact and predicted values in memory. A second call swaps them back.
  void exchange_values();
  /// Returns a slice of each current weight, or with `of_exact` of each exact weight, concatenated.
  Tensor slices(bool of_exact) const;
  const std::vector<std::int64_t>& slice_elements() const { return slice_elements_; }

 private:
  void exchange();
  void add_groups(const OptimizerConfig& config, const WeightPrediction& prediction);
  void predict_weight(std::size_t index, std::span<const OwnGradient> gradients);

  std::vector<Parameter*> parameters_;
  Optimizer& optimizer_;
  const Stream& stream_;
  const bool in_same_memory_;
  double factor_ = 1;     // factor of the rank's gradient
  bool uses_own_ = true;  // whether predictions use the rank's gradient
  std::vector<std::unique_ptr<UpdatePredictor>> groups_;
  struct Rule {
    std::size_t group = 0;
    double rate_factor = 1;
    Tensor *m = nullptr, *v = nullptr;  // the optimizer's state
  };
  std::vector<Rule> rules_;                             // indexed by weight
  std::vector<std::unique_ptr<WeightStorage>> others_;  // the exact weights during a prediction
  std::vector<std::int64_t> slice_elements_;
};

}  // namespace hybrid_trainer
