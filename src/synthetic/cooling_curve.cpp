#include "hybrid_trainer/synthetic/cooling_curve.h"

#include <cmath>

#include "hybrid_trainer/synthetic/random_draws.h"

namespace hybrid_trainer {
namespace {

double time_of(std::size_t sample, std::size_t samples) {
  return static_cast<double>(sample) / static_cast<double>(samples - 1);
}

}  // namespace

void write_cooling_curve(std::span<float> curve, bool fast, const RandomKey& key) {
  RandomDraws draws(key);
  const double height = draws.between(0.8f, 1.2f);
  const double constant = (fast ? 1.5 : 0.5) + 0.5 * draws.unit();
  for (std::size_t i = 0; i < curve.size(); ++i) {
    const double noise = 1 + draws.between(-0.01f, 0.01f);
    curve[i] = static_cast<float>(height * noise * std::exp(-constant * time_of(i, curve.size())));
  }
}

double fitted_cooling(std::span<const float> curve) {
  double products = 0, squares = 0;
  for (std::size_t i = 0; i < curve.size(); ++i) {
    const double away = time_of(i, curve.size()) - 0.5;  // from the mean time
    products += away * std::log(static_cast<double>(curve[i]));
    squares += away * away;
  }
  return -products / squares;
}

}  // namespace hybrid_trainer
