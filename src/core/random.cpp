#include "hybrid_trainer/core/random.h"

#include <algorithm>
#include <bit>
#include <cmath>
#include <numbers>

namespace hybrid_trainer {

float random_normal(const RandomKey& key, std::uint64_t i) {
  const auto words = philox(key, i);
  const double radius = std::sqrt(-2.0 * std::log((words[0] + 1.0) * 0x1p-32));
  return static_cast<float>(radius * std::cos(2.0 * std::numbers::pi * (words[1] * 0x1p-32)));
}

std::uint64_t random_permuted(const RandomKey& key, std::uint64_t i, std::uint64_t count) {
  constexpr int kRounds = 6;
  const int half_bits = std::max(1, static_cast<int>(std::bit_width(count - 1) + 1) / 2);
  const std::uint64_t mask = (std::uint64_t{1} << half_bits) - 1;
  do {
    std::uint64_t left = i >> half_bits, right = i & mask;
    for (std::uint64_t round = 0; round < kRounds; ++round) {
      const std::uint64_t mixed = left ^ (philox(key, round << 48 | right)[0] & mask);
      left = right;
      right = mixed;
    }
    i = left << half_bits | right;
  } while (i >= count);
  return i;
}

}  // namespace hybrid_trainer
