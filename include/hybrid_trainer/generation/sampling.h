#pragma once

#include <cstdint>
#include <span>

namespace hybrid_trainer {

/// How the next token is drawn from a model's logits.
struct SamplingSettings {
  double temperature = 1.0;  // divides the logits; 0 takes the likeliest token
  std::int64_t top_k = 0;    // only the k likeliest tokens; 0: all
  double top_p = 1.0;  // of these, the smallest set of likeliest tokens with this total probability
  std::uint64_t seed = 0;
};

/// Throws UsageError that names every setting out of range.
void check(const SamplingSettings& settings);

/// The token drawn from logits (V); of equal logits the smaller id comes first. Depends on its
/// arguments alone: the random number is that of (seed, position). Throws DataError if a logit is
/// NaN or +infinity.
std::int32_t sample_token(std::span<const float> logits, const SamplingSettings& settings,
                          std::uint64_t position);

}  // namespace hybrid_trainer
