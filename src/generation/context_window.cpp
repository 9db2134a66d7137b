#include "hybrid_trainer/generation/context_window.h"

#include <algorithm>

#include "hybrid_trainer/core/error.h"

namespace hybrid_trainer {
namespace {

/// The first `pinned` tokens of a text and those behind the `dropped` ones that follow.
std::vector<std::int32_t> without(std::span<const std::int32_t> text, std::int64_t pinned,
                                  std::int64_t dropped) {
  const auto begin = text.begin();
  std::vector<std::int32_t> rest(begin, begin + pinned);
  rest.insert(rest.end(), begin + pinned + dropped, text.end());
  return rest;
}

}  // namespace

ContextWindow::ContextWindow(std::int64_t context, std::int64_t pinned)
    : context_(context), pinned_(std::min(pinned, context / 2)) {}

std::int64_t ContextWindow::least() const {
  return pinned_ + std::max<std::int64_t>(1, (context_ - pinned_) / 2);
}

std::int64_t ContextWindow::dropped(std::int64_t tokens) const {
  if (tokens <= context_) return 0;
  const std::int64_t at_once = context_ + 1 - least();
  return ((tokens - context_ - 1) / at_once + 1) * at_once;
}

std::vector<std::int32_t> ContextWindow::of(std::span<const std::int32_t> text) const {
  const std::int64_t gone = dropped(std::ssize(text));
  return without(text, gone > 0 ? pinned_ : 0, gone);
}

FittedPrompt fit_prompt(std::vector<std::int32_t> prompt, const ContextWindow& window,
                        std::int64_t more, ContextOverflow overflow) {
  const std::int64_t tokens = std::ssize(prompt), context = window.context();
  if (tokens <= context) return {std::move(prompt)};
  if (overflow == ContextOverflow::kError)
    throw DataError(concat("the prompt has ", tokens, " tokens and the model's context is ",
                           context,
                           "; shorten it, or give --context-overflow truncate to leave out the "
                           "tokens before its end"));
  const std::int64_t kept = std::max(window.least(), context - std::min(more, context));
  return {without(prompt, window.pinned(), tokens - kept), tokens - kept};
}

void check_overflow(std::int64_t tokens, const ContextWindow& window, ContextOverflow overflow) {
  if (tokens <= window.context() || overflow == ContextOverflow::kTruncate) return;
  throw DataError(concat("the text has reached the model's context of ", window.context(),
                         " tokens; ask for fewer --tokens, or give --context-overflow truncate to "
                         "go on without its beginning"));
}

}  // namespace hybrid_trainer
