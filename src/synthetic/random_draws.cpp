#include "hybrid_trainer/synthetic/random_draws.h"

#include <cmath>
#include <numbers>

namespace hybrid_trainer {

double RandomDraws::normal() {
  const double radius = std::sqrt(-2.0 * std::log((word() + 1.0) * 0x1p-32));
  return radius * std::cos(2.0 * std::numbers::pi * (word() * 0x1p-32));
}

void add_uniform_noise(std::span<float> values, float most, const RandomKey& key) {
  for (std::size_t i = 0; i < values.size(); i += 4) {
    const auto words = philox(key, i / 4);
    for (std::size_t j = 0; j < 4 && i + j < values.size(); ++j)
      values[i + j] += most * (2 * to_unit_float(words[j]) - 1);
  }
}

}  // namespace hybrid_trainer
