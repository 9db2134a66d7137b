#pragma once

#include "hybrid_trainer/core/state.h"
#include "hybrid_trainer/phases/phase_config.h"
#include "hybrid_trainer/phases/trainable.h"

namespace hybrid_trainer {

enum class Readiness {
  kNotReady,        // needs more updates
  kReady,           // write_directions can be called
  kChangesNothing,  // a control: Predict runs without moving the weights
};

/// Predicts the change of the weights in one step, as one direction per weight. Callers decide how
/// far to move and measure whether the loss falls. The base class has no state.
class Predictor {
 public:
  virtual ~Predictor() = default;
  /// Called with the updated weights after each update by a computed (not predicted) gradient.
  virtual void observe(Trainable&) {}
  virtual Readiness readiness() const = 0;
  /// Writes the expected weight change, one f32 tensor per weight, before the gradient is known.
  virtual void write_directions(Trainable& model, const std::vector<Tensor>& directions) = 0;
  /// Called after the decision on a prediction, which has moved the weights by length·directions;
  /// `length` is 0 if it was reverted. Must shift or drop recorded weights accordingly.
  virtual void follow(Trainable&, const std::vector<Tensor>& /*directions*/, double /*length*/) {}
  virtual void save(State&) const {}
  virtual void load(const State&, Trainable&) {}
};

/// Makes the predictor named config.predictor:
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
