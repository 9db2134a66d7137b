#pragma once

#include <span>

#include "hybrid_trainer/core/stream.h"
#include "hybrid_trainer/nn/parameter.h"
#include "hybrid_trainer/optim/optimizer.h"
#include "hybrid_trainer/optim/optimizer_config.h"

namespace hybrid_trainer {

class UpdatePredictor;

/// This rank's part of a gradient that is summed over the ranks, and the settings of the update
/// that uses the sum.
struct OwnGradient {
  std::function<Tensor(const Parameter&)> of;  // f32, in the parameter's shape
  float learning_rate = 0;
  float gradient_scale = 1;  // for clipping
};

struct WeightPrediction {
  std::string device_side;  // phases.asynchronous_gradients.device_side
  double share = 1;         // this rank's share of all micro-batches
  /// If true, predicted values are stored in the memory of the exact ones, because others refer to
  /// that memory. If false, the weights use other memory during the prediction.
  bool in_same_memory = false;
};

/// Temporarily replaces exact weights by weights that include predicted updates, whose gradients
/// other ranks have not sent yet. The optimizer continues from the exact weights. A prediction
/// depends on the rank's own gradients, so predictions of the same weight differ between ranks.
///
/// A rank computes a `share` of the micro-batches, and its own gradient O is that part of the mean.
/// "anticipated" uses O/share, which is unbiased. Controls: "shared" uses O and (1 − share) of the
/// momentum, with less noise but a delay; "momentum" uses only that; "none" predicts nothing.
class PredictedWeights {
 public:
  /// `optimizer`: adamw or muon for these parameters, with f32 state; all must outlive this object.
  PredictedWeights(const OptimizerConfig& config, std::vector<Parameter*> parameters,
                   Optimizer& optimizer, const WeightPrediction& prediction, const Stream& stream);
  /// Restores the exact weights, unless predicted values are in their memory, which then stay.
  ~PredictedWeights();

  bool are_in_place() const { return !others_.empty(); }
  /// Starts a prediction, with the exact weights until predict() is called. Throws OutOfMemory.
  void begin();
  /// Sets weights to the exact weights plus the predicted updates by these gradients, oldest first.
  void predict(std::span<const OwnGradient> gradients);
  /// Restores the exact weights.
  void end();
  /// Calls `use` with exact in place of predicted weights, possibly in other memory than before.
  void with_exact(const std::function<void()>& use);
  /// Swaps the exact and predicted values in memory. A second call undoes it.
  void exchange_values();
  /// Returns a slice of each current weight, concatenated; with `of_exact`, of the exact weights.
  Tensor slices(bool of_exact) const;
  /// Returns the number of elements of each slice, by weight.
  const std::vector<std::int64_t>& slice_elements() const { return slice_elements_; }

 private:
  void exchange();
  void add_groups(const OptimizerConfig& config, const WeightPrediction& prediction);
  void predict_weight(std::size_t index, std::span<const OwnGradient> gradients);

  std::vector<Parameter*> parameters_;
  Optimizer& optimizer_;
  const Stream& stream_;
  const bool in_same_memory_;
  double factor_ = 1;     // of the rank's own gradient
  bool uses_own_ = true;  // whether predictions use the own gradient
  std::vector<std::unique_ptr<UpdatePredictor>> groups_;
  struct Rule {
    std::size_t group = 0;
    double rate_factor = 1;
    Tensor *m = nullptr, *v = nullptr;  // the optimizer's state
  };
  std::vector<Rule> rules_;                             // by weight
  std::vector<std::unique_ptr<WeightStorage>> others_;  // the exact weights during a prediction
  std::vector<std::int64_t> slice_elements_;
};

}  // namespace hybrid_trainer
