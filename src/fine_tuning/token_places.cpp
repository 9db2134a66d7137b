#include "src/fine_tuning/token_places.h"

#include <algorithm>

namespace hybrid_trainer {
namespace {

bool is_space(char c) { return c == ' ' || (c >= '\t' && c <= '\r'); }

}  // namespace

TokenPlaces::TokenPlaces(std::string_view text, std::span<const std::int32_t> tokens,
                         const Tokenizer& tokenizer)
    : text_(text), tokens_(tokens), tokenizer_(tokenizer) {
  if (!walk()) bytes_.clear();
}

/// Follows the tokens' bytes through the text. A space that the tokenizer puts before a word is in
/// no text, and white space that an added token takes from beside it is in no token. Fails where a
/// normalizer changed anything else.
bool TokenPlaces::walk() {
  std::size_t at = 0;
  for (const std::int32_t id : tokens_) {
    const std::string_view bytes = tokenizer_.token_bytes(id);
    std::size_t begin = at, length = bytes.size();
    while (!text_.substr(begin).starts_with(bytes)) {
      if (bytes.starts_with(' ') && text_.substr(begin).starts_with(bytes.substr(1))) {
        length = bytes.size() - 1;
        break;
      }
      if (begin == text_.size() || !is_space(text_[begin])) return false;
      ++begin;
    }
    at = begin + length;
    bytes_.emplace_back(begin, at);
  }
  return std::all_of(text_.begin() + static_cast<std::ptrdiff_t>(at), text_.end(), is_space);
}

/// By encoding what is between the byte asked for last and this one, or else all before it.
std::optional<std::size_t> TokenPlaces::tokens_before(std::size_t byte) {
  const auto count_from = [&](std::size_t from, std::size_t known) -> std::optional<std::size_t> {
    const auto part = tokenizer_.encode(text_.substr(from, byte - from), ControlText::kAsTokens);
    const auto rest = tokens_.subspan(known);
    if (part.size() > rest.size() || !std::equal(part.begin(), part.end(), rest.begin())) return {};
    return known + part.size();
  };
  auto count = byte < known_byte_ ? std::nullopt : count_from(known_byte_, known_tokens_);
  if (!count) count = count_from(0, 0);
  if (count) {
    known_byte_ = byte;
    known_tokens_ = *count;
  }
  return count;
}

std::optional<std::pair<std::size_t, std::size_t>> TokenPlaces::within(std::size_t begin,
                                                                       std::size_t end) {
  if (bytes_.empty()) {
    const auto first = tokens_before(begin), last = tokens_before(end);
    if (!first || !last) return {};
    return std::pair(*first, *last);
  }
  const auto first =
      std::ranges::lower_bound(bytes_, begin, {}, [](const auto& of) { return of.first; });
  auto last = first;
  while (last != bytes_.end() && last->first < end && last->second <= end) ++last;
  return std::pair(static_cast<std::size_t>(first - bytes_.begin()),
                   static_cast<std::size_t>(last - bytes_.begin()));
}

}  // namespace hybrid_trainer
