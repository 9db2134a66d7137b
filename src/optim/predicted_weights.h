#pragma once

#include <span>

#include "hybrid_trainer/core/stream.h"
#include "hybrid_trainer/nn/parameter.h"
#include "hybrid_trainer/optim/optimizer.h"
#include "hybrid_trainer/optim/optimizer_config.h"

namespace hybrid_trainer {

class UpdatePredictor;

/// One rank's part of a gradient that all ranks will sum, and what the update by the sum will be
/// made with, as far as it is known.
struct OwnGradient {
  std::function<Tensor(const Parameter&)> of;  // f32, in the parameter's shape
  float learning_rate = 0;
  float gradient_scale = 1;  // clipping
};

/// Inputs and outputs of a prediction of weights.
struct WeightPrediction {
  std::string device_side;  // phases.asynchronous_gradients.device_side
  double share = 1;         // of all micro-batches, this rank's
  /// Predicted values lie where the exact ones lay, since others refer to that memory; else weights
  /// get other memory for the time being.
  bool in_same_memory = false;
};

/// Weights that contain predictions of updates whose gradients other ranks have not sent yet, in
/// place of the exact ones, which the optimizer goes on from. What a rank predicts depends on its own
/// gradients, so that ranks that predict the same weight have different ones.
///
/// Of the mean over all micro-batches, of which `share` are this rank's, it knows its own part O.
/// "anticipated" takes O/share: what it expects of others is what it has itself, which is right on
/// average, whatever its noise. Controls: "shared", O and (1 − share) of the momentum, which has less
/// noise but is late; "momentum" alone; "none", no update at all.
class PredictedWeights {
 public:
  /// `optimizer`: of these parameters, adamw or muon with a state in f32; all must outlive it.
  PredictedWeights(const OptimizerConfig& config, std::vector<Parameter*> parameters,
                   Optimizer& optimizer, const WeightPrediction& prediction, const Stream& stream);
  /// Ends the prediction; predicted values in the same memory stay, since their users would not
  /// know.
  ~PredictedWeights();

  bool are_in_place() const { return !others_.empty(); }
  /// They take the place of the exact weights, at first as copies. Throws OutOfMemory.
  void begin();
  /// weights = exact weights with the predicted updates by these gradients, oldest first.
  void predict(std::span<const OwnGradient> gradients);
  /// The exact weights are in their place again.
  void end();
  /// Calls `use` with the exact weights in place, though not in the same memory.
  void with_exact(const std::function<void()>& use);
  /// Exact values come to where the predicted ones lie, and these to where they lay; and back.
  void exchange_values();
  /// A slice of each weight as it is, one after the other; for `of_exact`, of the exact ones.
  Tensor slices(bool of_exact) const;
  /// Elements of each slice, by weight.
  const std::vector<std::int64_t>& slice_elements() const { return slice_elements_; }

 private:
  void exchange();
  void add_groups(const OptimizerConfig& config, const WeightPrediction& prediction);
  void predict_weight(std::size_t index, std::span<const OwnGradient> gradients);

  std::vector<Parameter*> parameters_;
  Optimizer& optimizer_;
  const Stream& stream_;
  const bool in_same_memory_;
  double factor_ = 1;     // of a rank's own gradient
  bool uses_own_ = true;  // gradient at all
  std::vector<std::unique_ptr<UpdatePredictor>> groups_;
  struct Rule {
    std::size_t group = 0;
    double rate_factor = 1;
    Tensor *m = nullptr, *v = nullptr;  // the optimizer's
  };
  std::vector<Rule> rules_;                             // by weight
  std::vector<std::unique_ptr<WeightStorage>> others_;  // the exact ones, while these are in place
  std::vector<std::int64_t> slice_elements_;
};

}  // namespace hybrid_trainer
