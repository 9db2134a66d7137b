#pragma once

#include <cstdint>
#include <optional>
#include <span>
#include <vector>

namespace hybrid_trainer {

/// Settings for drawing the next token from a model's logits.
struct SamplingSettings {
  double temperature = 1.0;  // divides the logits; 0: the most likely token
  std::int64_t top_k = 0;    // keeps only the k most likely tokens; 0: all
  /// Keeps the fewest of the top_k tokens, most likely first, that reach this total probability.
  double top_p = 1.0;
  double min_p = 0;  // keeps tokens with at least this share of the highest probability
  /// Divides the positive logits, and multiplies the negative logits, of tokens that occur in the
  /// text; 1: off. Source: Keskar et al. 2019, "CTRL: a conditional transformer language model".
  double repetition_penalty = 1;
  std::uint64_t seed = 0;
};

/// Throws UsageError if any setting is out of range; the message names all of them.
void check(const SamplingSettings& settings);

/// Samples a token from logits (V); the smallest id wins ties. Each token's random number depends
/// only on (seed, position, token), so similar models usually sample the same token, as speculative
/// decoding requires. Throws DataError if a logit is NaN or +infinity. Source: the Gumbel-max
/// trick, here with exponential times (Maddison et al. 2014, "A* sampling").
std::int32_t sample_token(std::span<const float> logits, const SamplingSettings& settings,
                          std::uint64_t position, std::span<const std::int32_t> text = {});

/// Constraints on the tokens of a text, as in transformers' generate.
struct TokenConstraints {
  /// Forced second token of a text that begins with a single token.
  std::optional<std::int32_t> first{};
  std::optional<std::int32_t> last{};  // forced last token of a text of length `longest`
  std::vector<std::int32_t> end_tokens{};
  std::vector<std::int32_t> suppressed{};        // tokens that are never generated
  std::vector<std::int32_t> suppressed_first{};  // tokens that are never generated first
  double repetition_penalty = 1;     // penalty of tokens in the text, see SamplingSettings
  std::int64_t begun = 1;            // number of tokens that the text began with
  std::int64_t least = 0;            // minimum length of a text, including its beginning
  std::int64_t min_new_tokens = 0;   // minimum number of generated tokens
  std::int64_t longest = 0;          // maximum length of a text
  std::int64_t words = 0;            // ids of at least this value are never generated; 0: no limit
  std::int64_t no_repeat_ngram = 0;  // no n-gram of this length repeats; 0: no limit

  /// Returns whether `apply` changes any scores before the text reaches its maximum length.
  bool change_scores() const {
    return first || last || !suppressed.empty() || !suppressed_first.empty() ||
           repetition_penalty != 1 || least > 0 || min_new_tokens > 0 || no_repeat_ngram > 0;
  }
  /// Sets the scores of forbidden tokens to −∞. If a token is forced, sets its score to 0 and all
  /// other scores to −∞.
  void apply(std::span<float> scores, std::span<const std::int32_t> text) const;
};

}  // namespace hybrid_trainer
