#include "hybrid_trainer/synthetic/label_noise.h"

#include <cmath>

namespace hybrid_trainer {

std::int64_t noisy_label(std::int64_t label, std::int64_t labels, double noise,
                         RandomDraws& draws) {
  const bool wrong = draws.unit() < noise;
  const std::int64_t other = draws.below(labels - 1);
  return wrong ? (label + 1 + other) % labels : label;
}

double noisy_label_entropy(std::int64_t labels, double noise) {
  const auto term = [](double share) { return share > 0 ? -share * std::log(share) : 0.0; };
  return term(1 - noise) + term(noise) + noise * std::log(static_cast<double>(labels - 1));
}

}  // namespace hybrid_trainer
