#pragma once

#include <cstdint>
#include <optional>
#include <span>
#include <vector>

namespace hybrid_trainer {

/// How Llama 3.1 turns longer texts: frequencies below low_frequency turns in the original context are
/// divided by factor, those above high_frequency are kept, those between are mixed of both.
struct Llama3Rotation {
  std::int64_t head_size = 0;
  double theta = 1e4, factor = 1, low_frequency = 1, high_frequency = 4;
  std::int64_t original_context = 0;
};

/// What the head_size / 2 frequencies are divided by: the tensor rope_freqs.weight of a GGUF file.
std::vector<float> llama3_divisors(const Llama3Rotation& rotation);

/// The rotation whose divisors these are, by the settings that Llama 3.1 and later ones have; none where
/// they are others'.
std::optional<Llama3Rotation> llama3_rotation_of(std::span<const float> divisors, double theta);

}  // namespace hybrid_trainer
