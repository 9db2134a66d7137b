#include "phases/skip_backward/linear_predictor.h"

#include <algorithm>

#include "hybrid_trainer/kernels/elementwise.h"
#include "phases/state_fields.h"

namespace hybrid_trainer {

void LinearPredictor::observe(Trainable& model) {
  if (updates_++ % interval_ != 0) return;
  if (last_weights_.empty()) {
    last_weights_ = model.weights().empty_like_weights(MemoryKind::kPredictor);
    for (auto& change : changes_)
      change = model.weights().empty_like_weights(MemoryKind::kPredictor);
  } else {
    std::rotate(std::begin(changes_), std::begin(changes_) + 1, std::end(changes_));
    const std::vector<Tensor>& change = changes_[kChanges - 1];
    model.weights().copy_weights(change);
    for (std::size_t i = 0; i < change.size(); ++i)
      kernels::axpy(change[i], change[i], -1.0f, last_weights_[i], model.stream());
  }
  model.weights().copy_weights(last_weights_);
}

Readiness LinearPredictor::readiness() const {
  const bool full = updates_ > interval_ * static_cast<std::int64_t>(kChanges);
  return full ? Readiness::kReady : Readiness::kNotYet;
}

void LinearPredictor::write_directions(Trainable& model, const std::vector<Tensor>& directions) {
  const auto& [oldest, middle, newest] = changes_;
  for (std::size_t i = 0; i < directions.size(); ++i) {
    const double size = model.weights().wait_for_dot(oldest[i], oldest[i]);
    const double kept = size > 0 ? model.weights().wait_for_dot(newest[i], oldest[i]) / size : 0;
    const double gain = std::clamp(kept, 0.0, 1.0) / static_cast<double>(interval_);
    const auto ends = static_cast<float>(0.3 * gain), centre = static_cast<float>(0.4 * gain);
    model.weights().write_direction(directions[i], {oldest[i], middle[i], newest[i]},
                                    {ends, centre, ends});
  }
}

void LinearPredictor::save(State& state) const {
  state.integers["phases.linear.updates"] = updates_;
  save_tensors(state, "phases.linear.weights", last_weights_);
  for (std::size_t k = 0; k < kChanges; ++k) {
    // Before the ring is full its older members hold nothing yet.
    const bool written = updates_ > interval_ * static_cast<std::int64_t>(kChanges - k);
    save_tensors(state, "phases.linear.change" + std::to_string(k),
                 written ? changes_[k] : std::vector<Tensor>());
  }
}

void LinearPredictor::load(const State& state, Trainable& model) {
  const Stream& stream = model.stream();
  updates_ = state.integer("phases.linear.updates");
  last_weights_ = load_tensors(state, "phases.linear.weights", MemoryKind::kPredictor, stream);
  for (std::size_t k = 0; k < kChanges; ++k) {
    auto& change = changes_[k];
    change = load_tensors(state, "phases.linear.change" + std::to_string(k), MemoryKind::kPredictor,
                          stream);
    for (std::size_t i = change.size(); i < last_weights_.size(); ++i) {
      change.push_back(Tensor::empty_like(last_weights_[i], MemoryKind::kPredictor, stream));
    }
  }
}

}  // namespace hybrid_trainer
