#pragma once

#include <vector>

#include "hybrid_trainer/core/state.h"
#include "hybrid_trainer/phases/predictor.h"
#include "hybrid_trainer/phases/trainable.h"

namespace hybrid_trainer {

/// The straight line w(x) = snapshot + x·direction that a prediction moves on. Every point is
/// computed from the snapshot, so going away and coming back gives the same bits, and x = 0 is the
/// snapshot itself. Position is counted in first predicted steps.
class PredictionLine {
 public:
  /// Points the line along the predictor's present direction. False where it has none yet.
  bool aim(Trainable& model, Predictor& predictor);
  /// Fixes the snapshot at the present weights, position 0. Needs a successful aim.
  void start(Trainable& model);
  bool started() const { return started_; }

  /// Moves the weights to a position.
  void move_to(Trainable& model, double position);
  double position() const { return position_; }
  /// Slope of the loss per unit of position: <gradient, direction> of the last measurement.
  double wait_for_slope(Trainable& model) const;
  /// Frees directions and snapshot; the weights stay where they are.
  void release() { *this = PredictionLine(); }

  void save(State& state) const;
  void load(const State& state, const Stream& stream);

 private:
  std::vector<Tensor> directions_;  // both empty where the direction changes nothing
  std::vector<Tensor> snapshot_;
  double position_ = 0;
  bool started_ = false;
};

}  // namespace hybrid_trainer
