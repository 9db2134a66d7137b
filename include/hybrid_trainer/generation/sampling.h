#pragma once

#include <cstdint>
#include <span>

namespace hybrid_trainer {

/// How the next token is drawn from a model's logits.
struct SamplingSettings {
  double temperature = 1.0;  // divides the logits; 0 takes the likeliest token
  std::int64_t top_k = 0;    // only the k likeliest tokens; 0: all
  double top_p = 1.0;  // of these, the smallest set of likeliest tokens with this total probability
  double min_p = 0;    // of these, those at least this share as probable as the likeliest
  /// Divides positive logits of tokens that the text has and multiplies negative ones; 1: nothing.
  /// Source: Keskar et al. 2019, "CTRL: a conditional transformer language model".
  double repetition_penalty = 1;
  std::uint64_t seed = 0;
};

/// Throws UsageError that names every setting out of range.
void check(const SamplingSettings& settings);

/// The token drawn from logits (V); of equal logits the smaller id comes first. `text`: the tokens so
/// far, each below V. Depends on its arguments alone: each token has a random number of (seed,
/// position, token), so that models of nearly the same logits mostly draw the same token, which
/// speculative decoding lives on. Throws DataError if a logit is NaN or +infinity.
/// Source: the Gumbel-max trick, here as exponential times (Maddison et al. 2014, "A* sampling").
std::int32_t sample_token(std::span<const float> logits, const SamplingSettings& settings,
                          std::uint64_t position, std::span<const std::int32_t> text = {});

}  // namespace hybrid_trainer
