#pragma once

#include <cstdint>
#include <optional>
#include <span>
#include <vector>

namespace hybrid_trainer {

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
