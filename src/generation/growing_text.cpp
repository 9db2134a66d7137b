#include "src/generation/growing_text.h"

#include <algorithm>

namespace hybrid_trainer {

GrowingText::GrowingText(const Tokenizer& tokenizer, std::int64_t vocabulary,
                         std::vector<std::int32_t> text, const GenerationSettings& settings,
                         std::function<void(std::string_view)> write)
    : tokenizer_(tokenizer),
      text_(std::move(text)),
      end_tokens_(settings.end_tokens),
      sampling_(settings.sampling),
      most_(settings.tokens),
      words_(static_cast<std::size_t>(std::min(tokenizer.vocabulary_size(), vocabulary))),
      stop_(settings.stop),
      write_(std::move(write)) {}

std::int32_t GrowingText::draw(std::span<const float> logits) const {
  return sample_token(logits.first(words_), sampling_, static_cast<std::uint64_t>(tokens_), text_);
}

bool GrowingText::add(std::int32_t token) {
  const bool has_text = !ends(token);
  if (has_text) {
    write_some(stop_.add(assembler_.add(tokenizer_.token_bytes(token))));
    text_.push_back(token);
    ++tokens_;
  }
  if (has_text && !stop_.reached() && tokens_ < most_) return true;
  write_some(stop_.add(assembler_.rest()));
  write_some(stop_.rest());
  return false;
}

bool GrowingText::ends(std::int32_t token) const {
  return token == tokenizer_.end_of_text() || std::ranges::count(end_tokens_, token) > 0;
}

void GrowingText::write_some(const std::string& piece) const {
  if (!piece.empty()) write_(piece);
}

}  // namespace hybrid_trainer
