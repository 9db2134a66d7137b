#pragma once

#include <cstdint>
#include <optional>
#include <span>
#include <vector>

namespace hybrid_trainer {

/// Settings for drawing the next token from a model's logits.
struct SamplingSettings {
  double temperature = 1.0;  // divides the logits; 0: the most likely token
  std::int64_t top_k = 0;    // only the k most likely tokens; 0: all
  double top_p = 1.0;  // of these, the smallest set of likely tokens with this total probability
  double min_p = 0;    // of these, tokens with at least this share of the highest probability
  /// Divides positive logits of tokens that occur in the text, and multiplies negative ones; 1:
  /// off. Source: Keskar et al. 2019, "CTRL: a conditional transformer language model".
  double repetition_penalty = 1;
  std::uint64_t seed = 0;
};

/// Throws UsageError, naming every setting out of range.
void check(const SamplingSettings& settings);

/// Draws a token from logits (V); ties are resolved to the smaller id. `text`: the tokens so far,
/// each below V. Depends only on its arguments: each token has a random number from (seed,
/// position, token), so that models with similar logits mostly draw the same token, as speculative
/// decoding needs. Throws DataError if a logit is NaN or +infinity. Source: the Gumbel-max trick,
/// here as exponential times (Maddison et al. 2014, "A* sampling").
std::int32_t sample_token(std::span<const float> logits, const SamplingSettings& settings,
                          std::uint64_t position, std::span<const std::int32_t> text = {});

/// Constraints on the tokens of a text, as in transformers' generate.
struct TokenConstraints {
  std::optional<std::int32_t> first{};  // the first token after a beginning of one
  std::optional<std::int32_t> last{};   // the last token of a text of the largest length
  std::vector<std::int32_t> end_tokens{};
  std::vector<std::int32_t> suppressed{};        // never written
  std::vector<std::int32_t> suppressed_first{};  // not as the first generated token
  double repetition_penalty = 1;     // penalty of tokens in the text, see SamplingSettings
  std::int64_t begun = 1;            // tokens at the beginning of the text
  std::int64_t least = 0;            // shortest text, including its beginning
  std::int64_t min_new_tokens = 0;   // fewest generated tokens
  std::int64_t longest = 0;          // longest text
  std::int64_t words = 0;            // tokens from this id on are never written; 0: no limit
  std::int64_t no_repeat_ngram = 0;  // no n-gram of this length repeats; 0: no limit

  /// Returns whether apply changes scores of texts shorter than the largest length.
  bool change_scores() const {
    return first || last || !suppressed.empty() || !suppressed_first.empty() ||
           repetition_penalty != 1 || least > 0 || min_new_tokens > 0 || no_repeat_ngram > 0;
  }
  /// Sets forbidden tokens' scores to −∞. A forced token gets 0, and all others −∞.
  void apply(std::span<float> scores, std::span<const std::int32_t> text) const;
};

}  // namespace hybrid_trainer
