#include "text_cuts.h"

#include "hybrid_trainer/files/utf8.h"
#include "word_splitter.h"

namespace hybrid_trainer {

namespace {

bool is_ascii_white_space(char byte) { return byte == ' ' || (byte >= '\t' && byte <= '\r'); }

bool follows_white_space(std::string_view text, std::size_t place) {
  std::size_t begin = place - 1;
  while (begin > 0 && place - begin < 4 && is_continuation(text[begin])) --begin;
  const CodePoint last = decode_utf8(text, begin);
  return last.bytes == place - begin && is_white_space(last.value);
}

bool begins_contraction(std::string_view text, std::size_t place) {
  constexpr std::string_view kSecondLetters = "stmdrvl";  // 's, 't, 'm, 'd, 're, 've, 'll
  return text[place] == '\'' && kSecondLetters.find(text[place + 1]) != std::string_view::npos;
}

/// Whether the words on both sides of a cut at a word's end stay the same. White space before
/// something else would become one word, an apostrophe after the cut could begin a contraction.
bool is_cut(std::string_view text, std::size_t end, bool within_word) {
  if (within_word) return !begins_contraction(text, end);
  return !follows_white_space(text, end) || is_white_space(decode_utf8(text, end).value);
}

std::size_t last_word_end(std::string_view text) {
  // This close to the end, a contraction or a character may be cut off and change the words.
  constexpr std::size_t kUncertainBytes = 8;
  WordSplitter splitter;
  splitter.start(text);
  std::size_t cut = 0, end = 0;
  while (true) {
    end += splitter.next().size();
    if (end + kUncertainBytes > text.size()) return cut;
    if (is_cut(text, end, splitter.goes_on())) cut = end;
  }
}

}  // namespace

std::size_t last_cut(std::string_view text, std::size_t first) {
  for (std::size_t i = text.size() - 1; i > 0 && i >= first; --i) {
    if (is_ascii_white_space(text[i]) && !follows_white_space(text, i)) return i;
  }
  return last_word_end(text);
}

}  // namespace hybrid_trainer
