#include "hybrid_trainer/synthetic/random_draws.h"

#include <cmath>
#include <numbers>

namespace hybrid_trainer {

double RandomDraws::normal() {
  const double radius = std::sqrt(-2.0 * std::log((word() + 1.0) * 0x1p-32));
  return radius * std::cos(2.0 * std::numbers::pi * (word() * 0x1p-32));
}

void add_uniform_noise(std::span<float> values, float most, const RandomKey& key) {
  const float step = most * 0x1p-15f;
  for (std::size_t i = 0; i < values.size(); i += 8) {
    const auto words = philox(key, i / 8);
    for (std::size_t j = 0; j < 8 && i + j < values.size(); ++j) {
      const std::uint32_t half = words[j / 2] >> (j % 2 * 16) & 0xFFFFu;
      values[i + j] += step * static_cast<float>(static_cast<std::int32_t>(half) - 0x8000);
    }
  }
}

}  // namespace hybrid_trainer
