#include "word_splitter.h"

#include <algorithm>
#include <array>

#include "hybrid_trainer/files/utf8.h"
#include "unicode_classes.h"

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
  /// A character that is neither white space nor letter nor number.
  bool is_other() const { return !is_end() && !is(kWhiteSpace | kLetter | kNumber); }
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

std::size_t llama_word_end(std::string_view text, std::size_t begin, int most_digits) {
  if (const std::size_t bytes = contraction(text.substr(begin), true)) return begin + bytes;
  const Scanner first(text, begin);
  Scanner scanner = first;
  if (!first.is(kLetter | kNumber) && !is_line_end(first.value())) scanner.next();
  if (scanner.is(kLetter)) {
    scanner.pass(kLetter);
    return scanner.at();
  }
  scanner = first;
  if (scanner.is(kNumber)) {
    for (int i = 0; i < most_digits && scanner.is(kNumber); ++i) scanner.next();
    return scanner.at();
  }
  if (scanner.value() == U' ') scanner.next();
  if (scanner.is_other()) {
    scanner.pass_others();
    while (!scanner.is_end() && is_line_end(scanner.value())) scanner.next();
    return scanner.at();
  }
  const std::size_t end = lines_end(first);
  return end != 0 ? end : white_space_end(first, text.size());
}

}  // namespace

std::optional<WordPattern> word_pattern_of(std::string_view expression) {
  constexpr std::string_view kGpt2 =
      R"('s|'t|'re|'ve|'m|'ll|'d| ?\p{L}+| ?\p{N}+| ?[^\s\p{L}\p{N}]+|\s+(?!\S)|\s+)";
  constexpr std::string_view kLlama3Start =
      R"((?i:'s|'t|'re|'ve|'m|'ll|'d)|[^\r\n\p{L}\p{N}]?\p{L}+|\p{N})";
  constexpr std::string_view kLlama3End = R"(| ?[^\s\p{L}\p{N}]+[\r\n]*|\s*[\r\n]+|\s+(?!\S)|\s+)";
  if (expression == kGpt2) return WordPattern::kGpt2;
  if (!expression.starts_with(kLlama3Start) || !expression.ends_with(kLlama3End)) return {};
  if (expression.size() < kLlama3Start.size() + kLlama3End.size()) return {};
  expression.remove_prefix(kLlama3Start.size());
  expression.remove_suffix(kLlama3End.size());
  if (expression == "{1,3}") return WordPattern::kLlama3;
  if (expression.empty()) return WordPattern::kQwen2;
  return {};
}

std::size_t word_end(WordPattern pattern, std::string_view text, std::size_t begin) {
  if (decode_utf8(text, begin).bytes == 0) return begin + invalid_utf8_bytes(text, begin);
  if (pattern == WordPattern::kGpt2) return gpt2_word_end(text, begin);
  return llama_word_end(text, begin, pattern == WordPattern::kLlama3 ? 3 : 1);
}

bool may_cut(WordPattern pattern, char32_t before, char32_t after) {
  if (pattern == WordPattern::kGpt2) return is_white_space(after) && !is_white_space(before);
  // Line ends belong to the marks before them.
  const bool blank = is_white_space(after) && !is_line_end(after);
  return is_white_space(before) ? is_line_end(before) && !is_white_space(after) : blank;
}

}  // namespace hybrid_trainer
