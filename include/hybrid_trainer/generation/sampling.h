#pragma once

#include <cstdint>
#include <optional>
#include <span>
#include <vector>

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

/// Rules for the tokens of a text, whatever the model finds likely, as transformers' generate has them.
struct WritingRules {
  std::optional<std::int32_t> first{};  // the first token behind a beginning of one
  std::optional<std::int32_t> last{};   // that of a text of the largest length
  std::vector<std::int32_t> end_tokens{};
  std::vector<std::int32_t> suppressed{};           // never written
  std::vector<std::int32_t> suppressed_at_first{};  // not as the first generated token
  double repetition_penalty = 1;  // of tokens that the text has, see SamplingSettings
  std::int64_t begun = 1;         // tokens of the beginning
  std::int64_t least = 0;         // tokens of a text before it may end, its beginning included
  std::int64_t least_new = 0;     // generated tokens
  std::int64_t longest = 0;       // and most tokens
  std::int64_t words = 0;         // tokens from this one on are not written, 0: all may be
  std::int64_t unrepeated = 0;    // so many tokens in a row come once; 0: they may come again

  /// Whether apply changes scores before the text has its largest length.
  bool change_scores() const {
    return first || last || !suppressed.empty() || !suppressed_at_first.empty() ||
           repetition_penalty != 1 || least > 0 || least_new > 0 || unrepeated > 0;
  }
  /// Makes −∞ of the score of each token that must not follow the text. A token that must follow has 0,
  /// and all others −∞.
  void apply(std::span<float> scores, std::span<const std::int32_t> text) const;
};

}  // namespace hybrid_trainer
