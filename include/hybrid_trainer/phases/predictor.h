#pragma once

#include <memory>

#include "hybrid_trainer/core/state.h"
#include "hybrid_trainer/phases/phase_config.h"
#include "hybrid_trainer/phases/trainable.h"

namespace hybrid_trainer {

enum class Readiness {
  kNotReady,        // needs more updates
  kReady,           // write_directions can be called
  kChangesNothing,  // control: Predict runs, but weights do not move
};

/// Predicts the weight change of one step, as one direction per weight. Other code decides how far
/// to move and measures whether the loss falls. The base class is stateless.
class Predictor {
 public:
  virtual ~Predictor() = default;
  /// Called after each update with a computed (not predicted) gradient, with updated weights.
  virtual void observe(Trainable&) {}
  virtual Readiness readiness() const = 0;
  /// Writes the expected weight change of the next step: one f32 tensor per weight, in the weight's
  /// shape. Called only if the predictor is ready, before the gradient of that step is known.
  virtual void write_directions(Trainable& model, const std::vector<Tensor>& directions) = 0;
  /// Called after the decision on a prediction that moved the weights by length·directions;
  /// `length` is 0 if it was undone. Must move or drop the record of earlier weights accordingly.
  virtual void follow(Trainable&, const std::vector<Tensor>& /*directions*/, double /*length*/) {}
  virtual void save(State&) const {}
  virtual void load(const State&, Trainable&) {}
};

/// Makes the predictor that config.predictor names:
/// - momentum: the optimizer's update from its moments only. Uses no memory.
/// - linear: least-squares slope of the recent weights. Stores four tensors per weight.
/// - two_timescale: momentum and a slow mean of past weight changes. Stores one tensor per weight.
/// - merged: difference of the mean weights of two consecutive windows. Stores three tensors per
///   weight.
/// - random: a control, random directions of the momentum's length. Uses no memory.
/// - zero: a control that does not move the weights.
/// Tensors have the weights' shapes. two_timescale and merged store them like directions
/// (WeightSpace::empty_directions). Throws ConfigError with the nearest name.
std::unique_ptr<Predictor> make_predictor(const SkipBackwardConfig& config);

}  // namespace hybrid_trainer
