#include "src/generation/growing_text.h"

#include <limits>

namespace hybrid_trainer {

namespace {

/// Returns the number of bytes at the end of `text` that may begin `string`.
std::size_t partial_match_length(std::string_view text, std::string_view string) {
  for (std::size_t bytes = std::min(text.size(), string.size() - 1); bytes > 0; --bytes)
    if (text.ends_with(string.substr(0, bytes))) return bytes;
  return 0;
}

}  // namespace

StopStrings::StopStrings(std::vector<std::string> strings) : strings_(std::move(strings)) {
  if (std::ranges::find(strings_, "") != strings_.end())
    throw UsageError("stop: got an empty string, which would end every text immediately");
}

std::string StopStrings::add(std::string_view piece) {
  if (reached_) return "";
  held_ += piece;
  std::size_t end = held_.size(), begun = 0;
  for (const std::string& string : strings_) {
    end = std::min(end, held_.find(string));
    begun = std::max(begun, partial_match_length(held_, string));
  }
  reached_ = end < held_.size();
  std::string sure = held_.substr(0, reached_ ? end : held_.size() - begun);
  held_.erase(0, reached_ ? held_.size() : sure.size());
  return sure;
}

GrowingText::GrowingText(const Tokenizer& tokenizer, std::int64_t vocabulary,
                         std::vector<std::int32_t> text, const GenerationSettings& settings,
                         std::function<void(std::string_view)> write)
    : tokenizer_(tokenizer),
      text_(std::move(text)),
      end_tokens_(settings.end_tokens),
      sampling_(settings.sampling),
      rules_(settings.rules),
      words_(static_cast<std::size_t>(std::min(tokenizer.vocabulary_size(), vocabulary))),
      stop_(settings.stop),
      write_(std::move(write)) {
  rules_.begun = std::ssize(text_);
  constexpr std::int64_t kMax = std::numeric_limits<std::int64_t>::max();
  const std::int64_t asked = rules_.begun + std::min(settings.tokens, kMax - rules_.begun);
  const std::int64_t allowed =
      rules_.longest > 0 ? std::max(rules_.longest, rules_.begun + 1) : kMax;
  rules_.longest = std::min(asked, allowed);
  rules_.end_tokens = end_tokens_;
  if (tokenizer.end_of_text()) rules_.end_tokens.push_back(*tokenizer.end_of_text());
}

std::int32_t GrowingText::draw(std::span<const float> logits) const {
  logits = logits.first(words_);
  const auto position = static_cast<std::uint64_t>(tokens_);
  if (!rules_.change_scores()) return sample_token(logits, sampling_, position, text_);
  std::vector<float> scores(logits.begin(), logits.end());
  rules_.apply(scores, text_);
  return sample_token(scores, sampling_, position, text_);
}

bool GrowingText::add(std::int32_t token) {
  const bool has_text = !ends(token);
  if (has_text) {
    write_some(stop_.add(assembler_.add(tokenizer_.token_bytes(token))));
    text_.push_back(token);
    ++tokens_;
  }
  if (has_text && !stop_.reached() && std::ssize(text_) < rules_.longest) return true;
  write_some(stop_.add(assembler_.rest()));
  write_some(stop_.rest());
  return false;
}

}  // namespace hybrid_trainer
