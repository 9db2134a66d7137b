#pragma once

#include <memory>

#include "hybrid_trainer/core/state.h"
#include "hybrid_trainer/phases/phase_config.h"
#include "hybrid_trainer/phases/trainable.h"

namespace hybrid_trainer {

enum class Readiness {
  kNotReady,        // needs more updates
  kReady,           // write_directions gives a direction
  kChangesNothing,  // control: Predict runs, but weights do not move
};

/// Source of a predicted weight change: one direction per weight, the change of one step. Other
/// code decides how far to move and measures whether the loss falls. The base class is stateless.
class Predictor {
 public:
  virtual ~Predictor() = default;
  /// Called after each update by a true gradient, with the updated weights.
  virtual void observe(Trainable&) {}
  virtual Readiness readiness() const = 0;
  /// Writes the expected weight change of the next step. Shapes: one f32 tensor per weight, in its
  /// shape. Called only if ready, before the gradient of that step is known.
  virtual void write_directions(Trainable& model, const std::vector<Tensor>& directions) = 0;
  /// Called after a decision: the prediction moved the weights by length·directions, or not at all
  /// if 0. The predictor moves its record of earlier weights accordingly, or drops it.
  virtual void follow(Trainable&, const std::vector<Tensor>& /*directions*/, double /*length*/) {}
  virtual void save(State&) const {}
  virtual void load(const State&, Trainable&) {}
};

/// Makes the predictor that config.predictor names:
/// - momentum: the optimizer's update from its moments only. Uses no memory.
/// - linear: least-squares slope of the recent weights. Four tensors of the weights' size.
/// - two_timescale: momentum and a slow mean of past weight changes. One such tensor.
/// - merged: difference of the mean weights of two consecutive windows. Three such tensors.
/// - random: a control, random directions of the momentum's length. Uses no memory.
/// - zero: a control without any change.
/// two_timescale and merged store tensors with the directions. Throws ConfigError with the
/// nearest name.
std::unique_ptr<Predictor> make_predictor(const SkipBackwardConfig& config);

}  // namespace hybrid_trainer
