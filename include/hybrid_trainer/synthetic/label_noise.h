#pragma once

#include <cstdint>

#include "hybrid_trainer/synthetic/random_draws.h"

namespace hybrid_trainer {

/// The label, or with probability `noise` another one of [0, labels), each equally often.
std::int64_t noisy_label(std::int64_t label, std::int64_t labels, double noise, RandomDraws& draws);

/// Entropy of such a label for who knows the right one, in nats: the least cross entropy,
/// −(1−ε)·ln(1−ε) − ε·ln(ε/(K−1)) with ε the noise and K the labels.
double noisy_label_entropy(std::int64_t labels, double noise);

}  // namespace hybrid_trainer
