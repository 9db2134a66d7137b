#include "phases/prediction_line.h"

#include "hybrid_trainer/kernels/elementwise.h"
#include "hybrid_trainer/kernels/reductions.h"
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
  model.save_snapshot();
  position_ = 0;
  started_ = true;
}

void PredictionLine::add_direction(Trainable& model, double length) {
  const auto weights = model.weights();
  for (std::size_t i = 0; i < weights.size(); ++i) {
    kernels::axpy(weights[i].value, static_cast<float>(length), directions_[i], model.stream());
  }
}

void PredictionLine::advance(Trainable& model, double length) {
  position_ += length;
  if (directions_.empty()) return;
  add_direction(model, length);
  model.weights_changed();
}

void PredictionLine::return_to(Trainable& model, double position) {
  position_ = position;
  if (directions_.empty()) return;
  model.restore_snapshot();
  if (position != 0) add_direction(model, position);
  model.weights_changed();
}

double PredictionLine::wait_for_slope(Trainable& model) const {
  if (directions_.empty()) return 0;
  std::vector<Tensor> gradients;
  for (const WeightView& weight : model.weights()) gradients.push_back(weight.gradient);
  const Tensor slope = kernels::empty_result(model.stream());
  kernels::dot(slope, gradients, directions_, model.stream());
  return kernels::wait_for_value(slope, model.stream());
}

void PredictionLine::release(Trainable& model) {
  if (started_) model.drop_snapshot();
  *this = PredictionLine();
}

void PredictionLine::save(State& state) const {
  state.integers["phases.line.started"] = started_;
  state.reals["phases.line.position"] = position_;
  save_tensors(state, "phases.line.direction", started_ ? directions_ : std::vector<Tensor>());
}

void PredictionLine::load(const State& state, const Stream& stream) {
  started_ = state.integer("phases.line.started") != 0;
  position_ = state.real("phases.line.position");
  directions_ = load_tensors(state, "phases.line.direction", MemoryKind::kPredictor, stream);
}

}  // namespace hybrid_trainer
