#include "src/data/text_cuts.h"

#include "hybrid_trainer/files/utf8.h"
#include "src/data/word_splitter.h"

namespace hybrid_trainer {

std::size_t last_place_between(
    std::string_view text, std::size_t first,
    const std::function<bool(std::string_view before, std::string_view after)>& may_cut) {
  std::string_view after;
  for (std::size_t end = text.size(); end > 0;) {
    std::size_t begin = end - 1;
    while (begin > 0 && end - begin < 4 && is_continuation(text[begin])) --begin;
    std::string_view character = text.substr(begin, end - begin);
    if (decode_utf8(character, 0).bytes != character.size()) {  // no character, but a byte
      begin = end - 1;
      character = {};
    }
    if (!character.empty() && !after.empty() && may_cut(character, after)) return end;
    if (begin < first) return 0;
    after = character;
    end = begin;
  }
  return 0;
}

std::size_t last_character(std::string_view text, std::size_t first) {
  for (std::size_t i = text.size() - 1; i > 0 && i >= first; --i) {
    if (!is_continuation(text[i])) return i;
  }
  return 0;
}

std::size_t last_word_cut(std::string_view text, std::size_t first) {
  return last_place_between(text, first, [](std::string_view before, std::string_view after) {
    return may_cut(WordPattern::kGpt2, decode_utf8(before, 0).value, decode_utf8(after, 0).value);
  });
}

}  // namespace hybrid_trainer
