#include <cctype>

#include "hybrid_trainer/core/error.h"
#include "src/core/narrow.h"
#include "src/data/chat/syntax.h"
#include "src/data/chat/value.h"
#include "src/data/text/unicode.h"

namespace hybrid_trainer::jinja {

namespace {

using LexedKind = Token::Kind;

bool is_digit(char c) { return c >= '0' && c <= '9'; }
bool is_name_start(char c) { return std::isalpha(static_cast<unsigned char>(c)) != 0 || c == '_'; }

bool is_space(std::string_view text) { return leading_space(text) == text.size(); }

/// Maximum number of tokens. The longest template in use has about 5,000.
constexpr std::size_t kMaxTokens = 100'000;

/// Converts line ends to "\n" and removes a line end at the end.
std::string with_plain_line_ends(std::string_view source) {
  std::string text = replaced(replaced(source, "\r\n", "\n", -1), "\r", "\n", -1);
  if (text.ends_with('\n')) text.pop_back();
  return text;
}

class Lexer {
 public:
  Lexer(std::string_view source, const std::string& name)
      : source_(with_plain_line_ends(source)), name_(name) {}

  std::vector<Token> run() {
    while (at_ < source_.size()) {
      const std::size_t tag = next_tag();
      read_text(tag);
      if (tag == source_.size()) break;
      const char type = source_[tag + 1];
      at_ = tag + 2;
      if (at_ < source_.size() && (source_[at_] == '-' || source_[at_] == '+')) ++at_;
      if (type == '#') {
        skip_comment();
      } else {
        read_tag(type == '{' ? "}}" : "%}");
      }
      starts_line_ = source_[at_ - 1] == '\n';
    }
    add(LexedKind::kEnd, "");
    return std::move(tokens_);
  }

 private:
  template <class... Parts>
  [[noreturn]] void fail(const Parts&... parts) const {
    throw DataError(concat(name_, ":", line_, ": ", parts...));
  }
  std::string_view rest() const { return std::string_view(source_).substr(at_); }
  void add(LexedKind kind, std::string text) {
    if (tokens_.size() == kMaxTokens) fail("the template has more than ", kMaxTokens, " tokens");
    tokens_.push_back({kind, std::move(text), line_});
  }
  void pass(std::size_t bytes) {
    line_ += narrow<int>(std::ranges::count(rest().substr(0, bytes), '\n'));
    at_ += bytes;
  }
  void skip_space() { pass(leading_space(rest())); }

  std::size_t next_tag() const {
    for (std::size_t i = at_; i + 1 < source_.size(); ++i) {
      const char next = source_[i + 1];
      if (source_[i] == '{' && (next == '{' || next == '%' || next == '#')) return i;
    }
    return source_.size();
  }

  void read_text(std::size_t tag) {
    std::string text = source_.substr(at_, tag - at_);
    if (tag + 1 < source_.size()) {
      const char type = source_[tag + 1], sign = tag + 2 < source_.size() ? source_[tag + 2] : ' ';
      const std::size_t line_start = text.rfind('\n') + 1;  // 0: none
      if (sign == '-') {
        text = stripped(text, Side::kRight);
      } else if (sign != '+' && type != '{' && (line_start > 0 || starts_line_) &&
                 is_space(std::string_view(text).substr(line_start))) {
        text.resize(line_start);
      }
    }
    if (!text.empty()) add(LexedKind::kText, text);
    pass(tag - at_);
  }

  /// Skips white space after a block: all for the sign -, none for +, otherwise one line end.
  void skip_past(char sign) {
    if (sign == '-') {
      skip_space();
    } else if (sign != '+' && rest().starts_with('\n')) {
      pass(1);
    }
  }

  void skip_comment() {
    const std::size_t end = source_.find("#}", at_);
    if (end == std::string::npos) fail("a comment has no end; want \"#}\"");
    const char sign = end > at_ ? source_[end - 1] : ' ';
    pass(end + 2 - at_);
    skip_past(sign);
  }

  void read_tag(std::string_view end) {
    const bool is_block = end == "%}";
    add(is_block ? LexedKind::kBlockBegin : LexedKind::kPrintBegin, "");
    std::string open;  // brackets
    for (;;) {
      skip_space();
      if (rest().empty()) fail("a tag has no end; want \"", end, "\"");
      const char sign = rest().front();
      const bool has_sign = (sign == '-' || (sign == '+' && is_block));
      if (open.empty() && rest().substr(has_sign ? 1 : 0).starts_with(end)) {
        add(is_block ? LexedKind::kBlockEnd : LexedKind::kPrintEnd, "");
        pass(end.size() + (has_sign ? 1 : 0));
        if (is_block || sign == '-') skip_past(has_sign ? sign : ' ');
        return;
      }
      read_token(open);
      if (is_block && tokens_.back().is(LexedKind::kName, "raw") &&
          tokens_[tokens_.size() - 2].kind == LexedKind::kBlockBegin)
        fail("the statement \"raw\" is not supported");
    }
  }

  void read_token(std::string& open) {
    const char first = rest().front();
    std::size_t end = at_;
    if (is_name_start(first)) {
      while (end < source_.size() && (is_name_start(source_[end]) || is_digit(source_[end]))) ++end;
      add(LexedKind::kName, source_.substr(at_, end - at_));
      pass(end - at_);
    } else if (is_digit(first)) {
      read_number();
    } else if (first == '"' || first == '\'') {
      read_string();
    } else {
      read_operator(open);
    }
  }

  void read_number() {
    const auto digits_from = [&](std::size_t at) {
      while (at < source_.size() && is_digit(source_[at])) ++at;
      return at;
    };
    const auto digit_at = [&](std::size_t at) {
      return at < source_.size() && is_digit(source_[at]);
    };
    std::size_t end = digits_from(at_);
    const std::size_t whole = end;
    if (!tokens_.back().is(LexedKind::kOperator, ".")) {
      if (end < source_.size() && source_[end] == '.' && digit_at(end + 1))
        end = digits_from(end + 1);
      if (end < source_.size() && (source_[end] == 'e' || source_[end] == 'E')) {
        const bool has_sign =
            end + 1 < source_.size() && (source_[end + 1] == '-' || source_[end + 1] == '+');
        const std::size_t exponent = end + (has_sign ? 2 : 1);
        if (digit_at(exponent)) end = digits_from(exponent);
      }
    }
    add(end == whole ? LexedKind::kInteger : LexedKind::kFloat, source_.substr(at_, end - at_));
    pass(end - at_);
    if (at_ < source_.size() && (is_name_start(source_[at_])))
      fail("the number \"", shortened(tokens_.back().text), rest().front(), "…\" is not supported");
  }

  void read_operator(std::string& open) {
    static constexpr std::string_view kOperators[] = {
        "**", "//", "==", "!=", ">=", "<=", "+", "-", "/", "*", "%", "~", "[",
        "]",  "(",  ")",  "{",  "}",  ">",  "<", "=", ".", ":", "|", ",", ";"};
    static constexpr std::string_view kOpening = "([{", kClosing = ")]}";
    for (const std::string_view symbol : kOperators) {
      if (!rest().starts_with(symbol)) continue;
      if (kOpening.find(symbol) != std::string_view::npos) open += symbol;
      if (const auto at = kClosing.find(symbol); at != std::string_view::npos) {
        if (open.empty() || open.back() != kOpening[at]) fail("unexpected \"", symbol, "\"");
        open.pop_back();
      }
      add(LexedKind::kOperator, std::string(symbol));
      return pass(symbol.size());
    }
    fail("unexpected \"", character_at(rest(), 0), "\"");
  }

  void read_string() {
    const char quote = rest().front();
    std::size_t end = at_ + 1;
    while (end < source_.size() && source_[end] != quote) end += source_[end] == '\\' ? 2u : 1u;
    if (end >= source_.size()) fail("a string has no end; want ", quote);
    add(LexedKind::kString, unescaped(std::string_view(source_).substr(at_ + 1, end - at_ - 1)));
    pass(end + 1 - at_);
  }

  /// Replaces Python's escapes. Does not change unknown escapes.
  std::string unescaped(std::string_view text) const {
    static constexpr std::string_view kLetters = "\\'\"abfnrtv", kMeant = "\\'\"\a\b\f\n\r\t\v";
    std::string result;
    for (std::size_t i = 0; i < text.size(); ++i) {
      if (text[i] != '\\') {
        result += text[i];
        continue;
      }
      const char letter = text[++i];
      const std::size_t digits = letter == 'x' ? 2 : letter == 'u' ? 4 : letter == 'U' ? 8 : 0;
      if (const auto at = kLetters.find(letter); at != std::string_view::npos) {
        result += kMeant[at];
      } else if (digits > 0) {
        append_utf8(code_point(text.substr(i + 1, digits), digits, 16), result);
        i += digits;
      } else if (letter >= '0' && letter <= '7') {
        std::size_t count = 1;
        while (count < 3 && i + count < text.size() && text[i + count] >= '0' &&
               text[i + count] <= '7')
          ++count;
        append_utf8(code_point(text.substr(i, count), count, 8), result);
        i += count - 1;
      } else if (letter == 'N') {
        fail("the escape \\N is not supported");
      } else if (letter != '\n') {
        (result += '\\') += letter;
      }
    }
    return result;
  }

  char32_t code_point(std::string_view digits, std::size_t count, int base) const {
    const bool is_whole = digits.size() == count && std::ranges::all_of(digits, [](char c) {
                            return std::isxdigit(static_cast<unsigned char>(c)) != 0;
                          });
    const unsigned long value =
        is_whole ? std::stoul(std::string(digits), nullptr, base) : 0x110000;
    if (value >= 0x110000 || (value >= 0xD800 && value < 0xE000))
      fail("an escape in a string is not a character: \"", digits, "\"");
    return static_cast<char32_t>(value);
  }

  std::string source_;
  const std::string& name_;
  std::vector<Token> tokens_;
  std::size_t at_ = 0;
  int line_ = 1;
  bool starts_line_ = true;
};

}  // namespace

std::vector<Token> tokens_of(std::string_view source, const std::string& name) {
  return Lexer(source, name).run();
}

}  // namespace hybrid_trainer::jinja
