#include "hybrid_trainer/generation/writing_rules.h"

#include <algorithm>
#include <limits>
#include <set>

namespace hybrid_trainer {
namespace {

constexpr float kForbidden = -std::numeric_limits<float>::infinity();

void forbid(std::span<float> scores, std::int32_t id) {
  if (id >= 0 && id < std::ssize(scores)) scores[static_cast<std::size_t>(id)] = kForbidden;
}

void demand(std::span<float> scores, std::int32_t id) {
  std::ranges::fill(scores, kForbidden);
  if (id >= 0 && id < std::ssize(scores)) scores[static_cast<std::size_t>(id)] = 0;
}

void penalize(std::span<float> scores, std::span<const std::int32_t> text, double penalty) {
  const auto factor = static_cast<float>(penalty);
  for (const std::int32_t id : std::set<std::int32_t>(text.begin(), text.end())) {
    if (id < 0 || id >= std::ssize(scores)) continue;
    float& score = scores[static_cast<std::size_t>(id)];
    score = score > 0 ? score / factor : score * factor;
  }
}

/// Forbids what would complete `count` tokens in a row that the text has already.
void forbid_repetitions(std::span<float> scores, std::span<const std::int32_t> text,
                        std::int64_t count) {
  const std::int64_t length = std::ssize(text), before = count - 1;
  const auto end = text.last(static_cast<std::size_t>(std::min(before, length)));
  for (std::int64_t first = 0; first + before < length; ++first)
    if (std::ranges::equal(text.subspan(static_cast<std::size_t>(first), end.size()), end))
      forbid(scores, text[static_cast<std::size_t>(first + before)]);
}

}  // namespace

void WritingRules::apply(std::span<float> scores, std::span<const std::int32_t> text) const {
  const std::int64_t length = std::ssize(text);
  for (std::int64_t id = words > 0 ? words : std::ssize(scores); id < std::ssize(scores); ++id)
    scores[static_cast<std::size_t>(id)] = kForbidden;
  if (repetition_penalty != 1) penalize(scores, text, repetition_penalty);
  if (unrepeated > 0 && length >= unrepeated) forbid_repetitions(scores, text, unrepeated);
  if (length < std::max(least_new > 0 ? begun + least_new : 0, least))
    for (const std::int32_t id : end_tokens) forbid(scores, id);
  if (first && length == 1) demand(scores, *first);
  if (last && length == longest - 1) demand(scores, *last);
  for (const std::int32_t id : suppressed) forbid(scores, id);
  const bool follows_first = begun == 1 && first.has_value();
  if (length == begun + (follows_first ? 1 : 0))
    for (const std::int32_t id : suppressed_at_first) forbid(scores, id);
}

}  // namespace hybrid_trainer
