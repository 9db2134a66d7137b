#pragma once

#include <cstdint>
#include <optional>
#include <span>
#include <vector>

namespace hybrid_trainer {

/// What a text must and must not have, whatever the model finds likely.
struct WritingRules {
  std::optional<std::int32_t> first{};  // the first token behind a beginning of one
  std::optional<std::int32_t> last{};   // that of a text of the largest length
  std::vector<std::int32_t> end_tokens{};
  std::int64_t least = 0;       // tokens of a text before it may end, its beginning included
  std::int64_t longest = 0;     // and most tokens
  std::int64_t words = 0;       // tokens from this one on are not written, 0: all may be
  std::int64_t unrepeated = 0;  // so many tokens in a row come once; 0: they may come again

  /// Makes −∞ of the score of each token that must not follow the text. A token that must follow has 0,
  /// and all others −∞.
  void apply(std::span<float> scores, std::span<const std::int32_t> text) const;
};

}  // namespace hybrid_trainer
