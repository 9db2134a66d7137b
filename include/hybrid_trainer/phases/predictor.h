#pragma once

#include <memory>

#include "hybrid_trainer/core/state.h"
#include "hybrid_trainer/phases/phase_config.h"
#include "hybrid_trainer/phases/trainable.h"

namespace hybrid_trainer {

enum class Readiness {
  kNotYet,          // has not seen enough updates
  kReady,           // write_directions gives a direction
  kChangesNothing,  // the control: Predict runs and no weight moves
};

/// Where a predicted weight change comes from. It gives one direction per weight: the change of one
/// step. How far to go along it, and whether it lowers the loss, is measured elsewhere. By default it
/// keeps nothing from step to step.
class Predictor {
 public:
  virtual ~Predictor() = default;
  /// Called after each true update, with the updated weights.
  virtual void observe(Trainable&) {}
  virtual Readiness readiness() const = 0;
  /// Writes the expected weight change of the next step (f32, one tensor per weight, shapes of the
  /// weights). Called only where ready, before the gradient of that step is known.
  virtual void write_directions(Trainable& model, const std::vector<Tensor>& directions) = 0;
  /// A prediction was decided on, and kept as far as weights + length·directions; length 0: the
  /// weights are as they were before. What is held of earlier weights goes along, or is forgotten.
  virtual void follow(Trainable&, const std::vector<Tensor>& /*directions*/, double /*length*/) {}
  virtual void save(State&) const {}
  virtual void load(const State&, Trainable&) {}
};

/// The predictor that config.predictor names:
/// - momentum: coasting, what the optimizer would do from its moments alone. No memory of its own.
/// - linear: least-squares slope of the recent weight path. Four tensors of the weights' size.
/// - two_timescale: momentum, and a slow mean of past weight changes. One such tensor, where
///   directions lie.
/// - merged: from the mean of the weights over one stretch of updates to that over the next. Three
///   such tensors, there too.
/// - random: a placebo, random directions as long as momentum's. No memory of its own.
/// - zero: the control experiment.
/// Throws ConfigError with the nearest name.
std::unique_ptr<Predictor> make_predictor(const SkipBackwardConfig& config);

}  // namespace hybrid_trainer
