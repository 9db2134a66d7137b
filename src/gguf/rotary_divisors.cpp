#include "hybrid_trainer/gguf/rotary_divisors.h"

#include <algorithm>
#include <cmath>
#include <numbers>

namespace hybrid_trainer {

std::vector<float> llama3_divisors(const Llama3Rotation& rotation) {
  const double original = static_cast<double>(rotation.original_context);
  const double size = static_cast<double>(rotation.head_size);
  std::vector<float> divisors;
  for (std::int64_t i = 0; i < rotation.head_size / 2; ++i) {
    const double exponent = 2.0 * static_cast<double>(i) / size;
    const double turns = original / (2 * std::numbers::pi * std::pow(rotation.theta, exponent));
    const double share = std::clamp(
        (turns - rotation.low_frequency) / (rotation.high_frequency - rotation.low_frequency), 0.0,
        1.0);
    divisors.push_back(static_cast<float>(1 / ((1 - share) / rotation.factor + share)));
  }
  return divisors;
}

std::optional<Llama3Rotation> llama3_rotation_of(std::span<const float> divisors, double theta) {
  if (divisors.empty()) return {};
  constexpr double kClose = 1e-4;  // llama.cpp's converter computes in f32
  Llama3Rotation rotation{.head_size = static_cast<std::int64_t>(2 * divisors.size()),
                          .theta = theta,
                          .factor = *std::ranges::max_element(divisors)};
  // The context is told by no key: powers of two, 8192 of Llama 3.1 to 3.3 among them.
  for (rotation.original_context = 8; rotation.original_context <= (1 << 20);
       rotation.original_context *= 2) {
    const std::vector<float> made = llama3_divisors(rotation);
    const bool are_close = std::ranges::equal(
        made, divisors, [](double a, double b) { return std::abs(a - b) <= kClose * std::abs(b); });
    if (are_close) return rotation;
  }
  return {};
}

}  // namespace hybrid_trainer
