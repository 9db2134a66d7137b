#include "hybrid_trainer/core/random.h"

#include <cmath>
#include <numbers>

namespace hybrid_trainer {

float random_normal(const RandomKey& key, std::uint64_t i) {
  const auto words = philox(key, i);
  const double radius = std::sqrt(-2.0 * std::log((words[0] + 1.0) * 0x1p-32));
  return static_cast<float>(radius * std::cos(2.0 * std::numbers::pi * (words[1] * 0x1p-32)));
}

}  // namespace hybrid_trainer
