#include "src/data/text/word_splitter.h"

#include <algorithm>

#include "hybrid_trainer/core/error.h"
#include "src/data/text/unicode.h"
#include "src/files/text.h"

namespace hybrid_trainer {

namespace {

bool is_line_end(char32_t value) { return value == U'\n' || value == U'\r'; }

/// A text from some place on, character by character.
class Scanner {
 public:
  Scanner(std::string_view text, std::size_t at) : text_(text), at_(at) { read(); }
  std::size_t at() const { return at_; }
  bool is_end() const { return bytes_ == 0; }  // or not UTF-8
  char32_t value() const { return value_; }
  bool is(int classes) const { return (classes_ & classes) != 0; }
  /// A character of none of these classes.
  bool is_none_of(int classes) const { return !is_end() && !is(classes); }
  /// A character that is neither white space nor letter nor number.
  bool is_other() const { return is_none_of(kWhiteSpace | kLetter | kNumber); }
  void next() {
    at_ += bytes_;
    read();
  }
  void pass(int classes) {
    while (is(classes)) next();
  }
  void pass_others() {
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

/// Length of 's, 't, 're, 've, 'm, 'll or 'd; 0 if the text does not begin with one.
std::size_t contraction(std::string_view text, bool any_case) {
  if (text.size() < 2 || text[0] != '\'') return 0;
  const auto letter = [&](std::size_t i) {
    const char c = i < text.size() ? text[i] : '\0';
    return any_case && c >= 'A' && c <= 'Z' ? static_cast<char>(c - 'A' + 'a') : c;
  };
  const char first = letter(1), second = letter(2);
  if (first == 's' || first == 't' || first == 'm' || first == 'd') return 2;
  if (((first == 'r' || first == 'v') && second == 'e') || (first == 'l' && second == 'l'))
    return 3;
  return any_case && text.substr(1).starts_with("\u017F") ? 3 : 0;  // ſ folds to s
}

/// The end of white space from `begin` on: all of it before the end of the text, else all but the
/// last character, if there are several. \s+(?!\S)|\s+
std::size_t white_space_end(Scanner scanner, std::size_t text_bytes) {
  const std::size_t begin = scanner.at();
  std::size_t last = begin;
  for (; scanner.is(kWhiteSpace); scanner.next()) last = scanner.at();
  const bool is_followed = scanner.at() < text_bytes && !scanner.is_end();
  return is_followed && last > begin ? last : scanner.at();
}

std::size_t gpt2_word_end(std::string_view text, std::size_t begin) {
  if (const std::size_t bytes = contraction(text.substr(begin), false)) return begin + bytes;
  Scanner scanner(text, begin);
  if (scanner.value() == U' ') scanner.next();
  if (scanner.is(kLetter)) {
    scanner.pass(kLetter);
  } else if (scanner.is(kNumber)) {
    scanner.pass(kNumber);
  } else if (scanner.is_other()) {
    scanner.pass_others();
  } else {
    return white_space_end(Scanner(text, begin), text.size());
  }
  return scanner.at();
}

/// The end of \s*[\r\n]+: behind the last line end of the white space; 0 if it has none.
std::size_t lines_end(Scanner scanner) {
  std::size_t end = 0;
  while (scanner.is(kWhiteSpace)) {
    const bool ends_line = is_line_end(scanner.value());
    scanner.next();
    if (ends_line) end = scanner.at();
  }
  return end;
}

/// What tells the later patterns apart.
struct WordKind {
  int word = kLetter;  // classes of a word's characters
  int most_digits = 1;
  bool cased = false;              // a word is [UPPER]*[LOWER]+ or [UPPER]+[LOWER]*
  bool contractions_first = true;  // else behind a word, or nowhere
  bool contractions_behind = false;
  bool slashes_end_marks = false;  // [\r\n/]* rather than [\r\n]*
};

WordKind kind_of(WordPattern pattern) {
  const bool is_gpt4o = pattern == WordPattern::kGpt4o;
  WordKind kind;
  if (pattern == WordPattern::kLlama3 || is_gpt4o) kind.most_digits = 3;
  if (pattern == WordPattern::kQwen35) kind.word = kLetter | kNotLower | kNotUpper;
  if (is_gpt4o || pattern == WordPattern::kTekken) {
    kind.cased = kind.slashes_end_marks = true;
    kind.contractions_first = false;
    kind.contractions_behind = is_gpt4o;
  }
  return kind;
}

/// The end of [UPPER]*[LOWER]+, 0 where it does not match: of the characters that are both, the
/// first part gives back the last one where a character that is in upper case alone follows.
std::size_t lower_word_end(Scanner scanner) {
  std::size_t end = 0;
  while (scanner.is(kNotLower)) {
    const bool is_both = scanner.is(kNotUpper);
    scanner.next();
    if (is_both) end = scanner.at();
  }
  if (!scanner.is(kNotUpper)) return end;
  scanner.pass(kNotUpper);
  return scanner.at();
}

/// The end of [UPPER]+[LOWER]*, 0 where it does not match.
std::size_t upper_word_end(Scanner scanner) {
  if (!scanner.is(kNotLower)) return 0;
  scanner.pass(kNotLower);
  scanner.pass(kNotUpper);
  return scanner.at();
}

/// The end of a word that begins at `first`, with or without the one character that may stand
/// before it; 0 where none begins there.
std::size_t letters_end(const WordKind& kind, const Scanner& first) {
  Scanner after = first;
  if (!first.is(kLetter | kNumber) && !is_line_end(first.value())) after.next();
  if (kind.cased) {
    for (const auto end : {lower_word_end, upper_word_end}) {
      for (const Scanner& scanner : {after, first})
        if (const std::size_t found = end(scanner)) return found;
    }
    return 0;
  }
  for (Scanner scanner : {after, first}) {  // a mark may be either
    if (!scanner.is(kind.word)) continue;
    scanner.pass(kind.word);
    return scanner.at();
  }
  return 0;
}

std::size_t later_word_end(const WordKind& kind, std::string_view text, std::size_t begin) {
  if (kind.contractions_first) {
    if (const std::size_t bytes = contraction(text.substr(begin), true)) return begin + bytes;
  }
  const Scanner first(text, begin);
  if (const std::size_t end = letters_end(kind, first))
    return kind.contractions_behind ? end + contraction(text.substr(end), true) : end;
  Scanner scanner = first;
  if (scanner.is(kNumber)) {
    for (int i = 0; i < kind.most_digits && scanner.is(kNumber); ++i) scanner.next();
    return scanner.at();
  }
  const int not_other = kWhiteSpace | kNumber | kind.word;
  if (scanner.value() == U' ') scanner.next();
  if (scanner.is_none_of(not_other)) {
    while (scanner.is_none_of(not_other)) scanner.next();
    const auto ends_marks = [&](char32_t value) {
      return is_line_end(value) || (kind.slashes_end_marks && value == U'/');
    };
    while (!scanner.is_end() && ends_marks(scanner.value())) scanner.next();
    return scanner.at();
  }
  const std::size_t end = lines_end(first);
  return end != 0 ? end : white_space_end(first, text.size());
}

using NamedPattern = std::pair<std::string, WordPattern>;

std::vector<NamedPattern> known_patterns() {
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
  return {{R"('s|'t|'re|'ve|'m|'ll|'d| ?\p{L}+| ?\p{N}+| ?[^\s\p{L}\p{N}]+|\s+(?!\S)|\s+)",
           WordPattern::kGpt2},
          {concat(letters, R"(|\p{N}{1,3})", marks), WordPattern::kLlama3},
          {concat(letters, R"(|\p{N})", marks), WordPattern::kQwen2},
          {concat(kContractions, "|", kBefore,
                  R"([\p{L}\p{M}]+|\p{N}| ?[^\s\p{L}\p{M}\p{N}]+[\r\n]*)", kSpace),
           WordPattern::kQwen35},
          {concat(cased(""), R"(|\p{N})", marks_and_slashes), WordPattern::kTekken},
          {concat(cased(concat(kContractions, "?")), R"(|\p{N}{1,3})", marks_and_slashes),
           WordPattern::kGpt4o}};
}

}  // namespace

std::optional<WordPattern> word_pattern_of(std::string_view expression) {
  for (const auto& [text, pattern] : known_patterns())
    if (expression == text) return pattern;
  return {};
}

std::string word_expression(WordPattern pattern) {
  const std::vector<NamedPattern> known = known_patterns();
  return std::ranges::find(known, pattern, &NamedPattern::second)->first;
}

std::size_t word_end(WordPattern pattern, std::string_view text, std::size_t begin) {
  if (decode_utf8(text, begin).bytes == 0) return begin + invalid_utf8_bytes(text, begin);
  if (pattern == WordPattern::kGpt2) return gpt2_word_end(text, begin);
  return later_word_end(kind_of(pattern), text, begin);
}

bool may_cut(WordPattern pattern, char32_t before, char32_t after) {
  if (pattern == WordPattern::kGpt2) return is_white_space(after) && !is_white_space(before);
  // Line ends, and slashes for some, belong to the marks before them.
  const bool blank = is_white_space(after) && !is_line_end(after);
  const bool slash = after == U'/' && kind_of(pattern).slashes_end_marks;
  return is_white_space(before) ? is_line_end(before) && !is_white_space(after) && !slash : blank;
}

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
