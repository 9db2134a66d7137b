#pragma once

#include <vector>

#include "hybrid_trainer/core/state.h"
#include "hybrid_trainer/phases/predictor.h"
#include "hybrid_trainer/phases/trainable.h"

namespace hybrid_trainer {

/// The straight line w(x) = snapshot + x·direction that a prediction moves on. Position is in units
/// of the first predicted step; at 0 the weights are the snapshot bit for bit.
class PredictionLine {
 public:
  /// Points the line along the predictor's current direction. False if it has none yet.
  bool aim(Trainable& model, Predictor& predictor);
  /// Whether the direction is finite and, but for the control's, not zero. Blocks.
  bool wait_for_sound_direction(Trainable& model) const;
  /// Fixes the snapshot at the current weights, position 0. Needs a successful aim.
  void start(Trainable& model);
  /// False for the control, whose direction changes nothing.
  bool moves() const { return !directions_.empty(); }

  /// Moves the weights forward by a length.
  void advance(Trainable& model, double length);
  /// Moves the weights to a position, starting from the snapshot.
  void return_to(Trainable& model, double position);
  double position() const { return position_; }
  /// Empty for the control.
  const std::vector<Tensor>& directions() const { return directions_; }
  /// Slope of the loss per unit of position: <gradient, direction> of the last measurement.
  double wait_for_slope(Trainable& model) const;
  /// Frees directions and snapshot; the weights stay where they are.
  void release(Trainable& model);

  void save(State& state) const;
  void load(const State& state, Trainable& model);

 private:
  std::vector<Tensor> directions_;  // empty where the direction changes nothing
  double position_ = 0;
  bool started_ = false;
};

}  // namespace hybrid_trainer
