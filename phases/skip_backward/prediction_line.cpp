#include "phases/skip_backward/prediction_line.h"

#include <cmath>

#include "phases/state_fields.h"

namespace hybrid_trainer {

bool PredictionLine::aim(Trainable& model, Predictor& predictor) {
  switch (predictor.readiness()) {
    case Readiness::kNotYet:
      return false;
    case Readiness::kChangesNothing:
      directions_.clear();
      return true;
    case Readiness::kReady:
      break;
  }
  if (directions_.empty()) directions_ = model.weights().empty_directions();
  predictor.write_directions(model, directions_);
  return true;
}

bool PredictionLine::wait_for_sound_direction(Trainable& model) const {
  double squares = 0;
  for (const Tensor& direction : directions_)
    squares += model.weights().wait_for_dot(direction, direction);
  return !moves() || (squares > 0 && std::isfinite(squares));
}

void PredictionLine::start(Trainable& model) {
  model.rollback().save_snapshot();
  position_ = 0;
  started_ = true;
}

void PredictionLine::advance(Trainable& model, double length) {
  position_ += length;
  if (moves()) model.weights().move_along(directions_, length);
}

void PredictionLine::return_to(Trainable& model, double position) {
  position_ = position;
  if (!moves()) return;
  model.rollback().restore_snapshot();
  if (position != 0) model.weights().move_along(directions_, position);
}

double PredictionLine::wait_for_slope(Trainable& model) const {
  return moves() ? model.weights().wait_for_slope(directions_) : 0;
}

void PredictionLine::release(Trainable& model) {
  if (started_) model.rollback().drop_snapshot();
  *this = PredictionLine();
}

void PredictionLine::save(State& state) const {
  state.integers["phases.line.started"] = started_;
  state.reals["phases.line.position"] = position_;
  save_tensors(state, "phases.line.direction", started_ ? directions_ : std::vector<Tensor>());
}

void PredictionLine::load(const State& state, Trainable& model) {
  started_ = state.integer("phases.line.started") != 0;
  position_ = state.real("phases.line.position");
  directions_.clear();
  const std::string name = "phases.line.direction";
  if (state.integer(name + ".count") > 0) directions_ = load_directions(state, name, model);
}

}  // namespace hybrid_trainer
