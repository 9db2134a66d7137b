#pragma once

#include <cstdint>
#include <span>
#include <vector>

namespace hybrid_trainer {

/// The part of a text that a model sees if it outgrows the context: the first tokens, which are
/// pinned (a beginning-of-text token, a system message), and the last ones. Each time that the text
/// no longer fits, half of the tokens behind the pinned ones are dropped.
class ContextWindow {
 public:
  /// At most half of the context is pinned.
  ContextWindow(std::int64_t context, std::int64_t pinned);
  /// Tokens that are no longer seen of a text of so many.
  std::int64_t dropped(std::int64_t tokens) const;
  /// The tokens that are seen.
  std::vector<std::int32_t> of(std::span<const std::int32_t> text) const;
  std::int64_t context() const { return context_; }
  std::int64_t pinned() const { return pinned_; }
  /// Tokens that are left when a text has just outgrown the context.
  std::int64_t least() const;

 private:
  std::int64_t context_, pinned_;
};

/// Action for a text that outgrows the model's context.
enum class ContextOverflow { kTruncate, kError };

/// A prompt as the model sees it.
struct FittedPrompt {
  std::vector<std::int32_t> tokens;
  std::int64_t left_out = 0;  // tokens behind the pinned ones
};

/// A prompt that is longer than the context keeps its pinned tokens and its end: as much as leaves
/// room for `more` tokens to be made, but at least what ContextWindow leaves. Throws DataError where
/// `overflow` is kError.
FittedPrompt fit_prompt(std::vector<std::int32_t> prompt, const ContextWindow& window,
                        std::int64_t more, ContextOverflow overflow);

/// Throws DataError for a text of so many tokens that has outgrown the context, where `overflow` is
/// kError.
void check_overflow(std::int64_t tokens, const ContextWindow& window, ContextOverflow overflow);

}  // namespace hybrid_trainer
