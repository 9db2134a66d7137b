#include "phases/experiments/random_predictor.h"

#include <cmath>

#include "hybrid_trainer/core/random.h"

namespace hybrid_trainer {
namespace {

constexpr std::uint64_t kPlaceboSeed = 11;
constexpr const char* kDrawn = "phases.random.drawn";

}  // namespace

void RandomPredictor::write_directions(Trainable& model, const std::vector<Tensor>& directions) {
  model.weights().write_momentum_directions(directions);
  ++drawn_;
  if (model.stream().device().simulated) return;
  for (std::size_t i = 0; i < directions.size(); ++i) {
    const Tensor& direction = directions[i];
    const double length = std::sqrt(model.weights().wait_for_dot(direction, direction));
    const Tensor drawn = Tensor::empty_like(direction, MemoryKind::kPredictor, host_);
    const RandomKey key{kPlaceboSeed, static_cast<std::uint64_t>(drawn_), i};
    double squares = 0;
    for (std::int64_t k = 0; k < drawn.elements(); ++k) {
      const float value = random_normal(key, static_cast<std::uint64_t>(k));
      drawn.data<float>()[k] = value;
      squares += static_cast<double>(value) * value;
    }
    const auto scale = static_cast<float>(length / std::sqrt(squares));
    for (std::int64_t k = 0; k < drawn.elements(); ++k) drawn.data<float>()[k] *= scale;
    wait_for_copy(direction, drawn, model.stream());
  }
}

void RandomPredictor::save(State& state) const { state.integers[kDrawn] = drawn_; }

void RandomPredictor::load(const State& state, Trainable&) { drawn_ = state.integer(kDrawn); }

}  // namespace hybrid_trainer
