#include "phases/prediction_line.h"

#include "hybrid_trainer/kernels/elementwise.h"
#include "phases/state_tensors.h"

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
  if (directions_.empty()) directions_ = empty_like_weights(model, MemoryKind::kPredictor);
  predictor.write_directions(model, directions_);
  return true;
}

void PredictionLine::start(Trainable& model) {
  started_ = true;
  position_ = 0;
  if (directions_.empty()) return;
  snapshot_ = empty_like_weights(model, MemoryKind::kSnapshot);
  const auto weights = model.weights();
  for (std::size_t i = 0; i < weights.size(); ++i) {
    copy(snapshot_[i], weights[i].value, model.stream());
  }
}

void PredictionLine::move_to(Trainable& model, double position) {
  position_ = position;
  if (directions_.empty()) return;
  const auto weights = model.weights();
  for (std::size_t i = 0; i < weights.size(); ++i) {
    if (position == 0) {
      copy(weights[i].value, snapshot_[i], model.stream());
    } else {
      kernels::move_along(weights[i].value, snapshot_[i], static_cast<float>(position),
                          directions_[i], model.stream());
    }
  }
  model.weights_changed();
}

double PredictionLine::wait_for_slope(Trainable& model) const {
  double slope = 0;
  if (directions_.empty()) return slope;
  const auto weights = model.weights();
  for (std::size_t i = 0; i < weights.size(); ++i) {
    slope += kernels::wait_for_dot(weights[i].gradient, directions_[i], model.stream());
  }
  return slope;
}

void PredictionLine::save(State& state) const {
  state.integers["phases.line.started"] = started_;
  state.reals["phases.line.position"] = position_;
  save_tensors(state, "phases.line.direction", started_ ? directions_ : std::vector<Tensor>());
  save_tensors(state, "phases.line.snapshot", snapshot_);
}

void PredictionLine::load(const State& state, const Stream& stream) {
  started_ = state.integer("phases.line.started") != 0;
  position_ = state.real("phases.line.position");
  directions_ = load_tensors(state, "phases.line.direction", MemoryKind::kPredictor, stream);
  snapshot_ = load_tensors(state, "phases.line.snapshot", MemoryKind::kSnapshot, stream);
}

}  // namespace hybrid_trainer
