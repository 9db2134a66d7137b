#include "src/data/text/word_splitter.h"

#include "hybrid_trainer/core/error.h"
#include "src/data/text/unicode.h"
#include "src/files/text.h"

namespace hybrid_trainer {

namespace {

class Scanner {
 public:
  Scanner(std::string_view text, std::size_t at) : text_(text), at_(at) { read(); }
  std::size_t at() const { return at_; }
  bool is_end() const { return bytes_ == 0; }  // or not UTF-8
  char32_t value() const { return value_; }
  bool is(int classes) const { return (classes_ & classes) != 0; }
  /// Returns whether the character is not white space, letter or number.
  bool is_other() const { return !is_end() && !is(kWhiteSpace | kLetter | kNumber); }
  void next() {
    at_ += bytes_;
    read();
  }
  void pass(int classes) {
    while (is(classes)) next();
  }
  void skip_others() {
    while (is_other()) next();
  }

 private:
  void read() {
    const unsigned char byte = at_ < text_.size() ? static_cast<unsigned char>(text_[at_]) : 0x80;
    const CodePoint found = byte < 0x80 ? CodePoint{byte, 1} : decode_utf8(text_, at_);
    bytes_ = found.bytes;
    value_ = found.value;
    classes_ = bytes_ == 0 ? 0 : table_[value_];
  }
  const std::uint8_t* table_ = unicode_classes();
  std::string_view text_;
  std::size_t at_;
  std::size_t bytes_ = 0;
  char32_t value_ = 0;
  std::uint8_t classes_ = 0;
};

/// Returns the length of a contraction at the start, 's, 't, 're, 've, 'm, 'll or 'd, else 0.
std::size_t contraction(std::string_view text) {
  if (text.size() < 2 || text[0] != '\'') return 0;
  const char first = text[1], second = text.size() > 2 ? text[2] : '\0';
  if (first == 's' || first == 't' || first == 'm' || first == 'd') return 2;
  return ((first == 'r' || first == 'v') && second == 'e') || (first == 'l' && second == 'l') ? 3
                                                                                              : 0;
}

/// Returns the end of the match of \s+(?!\S)|\s+ at `begin`: all white space if the text ends after
/// it, otherwise all except the last character, if there are several.
std::size_t white_space_end(Scanner scanner, std::size_t text_bytes) {
  const std::size_t begin = scanner.at();
  std::size_t last = begin;
  for (; scanner.is(kWhiteSpace); scanner.next()) last = scanner.at();
  const bool is_followed = scanner.at() < text_bytes && !scanner.is_end();
  return is_followed && last > begin ? last : scanner.at();
}

}  // namespace

std::string word_expression(WordPattern pattern) {
  constexpr const char *kContractions = "(?i:'s|'t|'re|'ve|'m|'ll|'d)",
                       *kBefore = R"([^\r\n\p{L}\p{N}]?)",
                       *kUpper = R"([\p{Lu}\p{Lt}\p{Lm}\p{Lo}\p{M}])",
                       *kLower = R"([\p{Ll}\p{Lm}\p{Lo}\p{M}])",
                       *kSpace = R"(|\s*[\r\n]+|\s+(?!\S)|\s+)";
  const auto cased = [&](const std::string& behind) {
    return concat(kBefore, kUpper, "*", kLower, "+", behind, "|", kBefore, kUpper, "+", kLower, "*",
                  behind);
  };
  const std::string letters = concat(kContractions, "|", kBefore, R"(\p{L}+)"),
                    marks = concat(R"(| ?[^\s\p{L}\p{N}]+[\r\n]*)", kSpace),
                    marks_and_slashes = concat(R"(| ?[^\s\p{L}\p{N}]+[\r\n/]*)", kSpace);
  switch (pattern) {
    case WordPattern::kGpt2:
      return R"('s|'t|'re|'ve|'m|'ll|'d| ?\p{L}+| ?\p{N}+| ?[^\s\p{L}\p{N}]+|\s+(?!\S)|\s+)";
    case WordPattern::kLlama3: return concat(letters, R"(|\p{N}{1,3})", marks);
    case WordPattern::kQwen2: return concat(letters, R"(|\p{N})", marks);
    case WordPattern::kQwen35:
      return concat(kContractions, "|", kBefore,
                    R"([\p{L}\p{M}]+|\p{N}| ?[^\s\p{L}\p{M}\p{N}]+[\r\n]*)", kSpace);
    case WordPattern::kTekken: return concat(cased(""), R"(|\p{N})", marks_and_slashes);
    case WordPattern::kGpt4o:
      return concat(cased(concat(kContractions, "?")), R"(|\p{N}{1,3})", marks_and_slashes);
    case WordPattern::kOther: break;
  }
  return "";
}

std::size_t gpt2_word_end(std::string_view text, std::size_t begin) {
  if (decode_utf8(text, begin).bytes == 0) return begin + invalid_utf8_bytes(text, begin);
  if (const std::size_t bytes = contraction(text.substr(begin))) return begin + bytes;
  Scanner scanner(text, begin);
  if (scanner.value() == U' ') scanner.next();
  if (scanner.is(kLetter)) {
    scanner.pass(kLetter);
  } else if (scanner.is(kNumber)) {
    scanner.pass(kNumber);
  } else if (scanner.is_other()) {
    scanner.skip_others();
  } else {
    return white_space_end(Scanner(text, begin), text.size());
  }
  return scanner.at();
}

bool may_cut(WordPattern pattern, char32_t before, char32_t after) {
  if (pattern == WordPattern::kOther) return false;
  if (pattern == WordPattern::kGpt2) return is_white_space(after) && !is_white_space(before);
  const bool is_line_end = before == U'\n' || before == U'\r';
  // Line ends, and for some patterns slashes, belong to the punctuation before them.
  const bool blank = is_white_space(after) && after != U'\n' && after != U'\r';
  const bool slash =
      after == U'/' && (pattern == WordPattern::kTekken || pattern == WordPattern::kGpt4o);
  return is_white_space(before) ? is_line_end && !is_white_space(after) && !slash : blank;
}

std::size_t last_match_between(
    std::string_view text, std::size_t first,
    const std::function<bool(std::string_view before, std::string_view after)>& may_cut) {
  std::string_view after;
  for (std::size_t end = text.size(); end > 0;) {
    std::string_view character = final_character(text.substr(0, end));
    const std::size_t begin = end - character.size();
    if (decode_utf8(character, 0).bytes == 0) character = {};  // not a character, but a byte
    if (!character.empty() && !after.empty() && may_cut(character, after)) return end;
    if (begin < first) return 0;
    after = character;
    end = begin;
  }
  return 0;
}

std::size_t last_character(std::string_view text, std::size_t first) {
  if (text.empty()) return 0;
  for (std::size_t i = text.size() - 1; i > 0 && i >= first; --i) {
    if (!is_continuation(text[i])) return i;
  }
  return 0;
}

std::size_t last_word_cut(std::string_view text, std::size_t first) {
  return last_match_between(text, first, [](std::string_view before, std::string_view after) {
    return may_cut(WordPattern::kGpt2, decode_utf8(before, 0).value, decode_utf8(after, 0).value);
  });
}

}  // namespace hybrid_trainer
