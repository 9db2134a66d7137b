#define PCRE2_CODE_UNIT_WIDTH 8
#include <pcre2.h>

#include "hybrid_trainer/core/error.h"
#include "src/data/text/text_pipeline.h"
#include "src/data/text/unicode.h"
#include "src/files/text.h"

namespace hybrid_trainer {

namespace {

/// An escape that the two dialects interpret differently, in PCRE2's form outside and inside a set.
/// A form is "" if it is not supported. The word characters replace @.
struct Escape {
  char letter;
  std::string_view outside, in_set;
};
constexpr Escape kEscapes[] = {{'w', "[@]", "@"},
                               {'W', "[^@]", ""},
                               {'b', "(?:(?<=[@])(?![@])|(?<![@])(?=[@]))", R"(\b)"},
                               {'B', "(?:(?<=[@])(?=[@])|(?<![@])(?![@]))", "B"},
                               {'h', "[0-9A-Fa-f]", "0-9A-Fa-f"},
                               {'H', "[^0-9A-Fa-f]", ""},
                               {'v', R"(\x0B)", R"(\x0B)"},
                               {'Q', "Q", "Q"},
                               {'E', "E", "E"}};
constexpr const char *kWordInSet = R"(\p{Alphabetic}\p{M}\p{Nd}\p{Pc})",
                     *kWord = R"(\p{Alphabetic}\p{M}\p{Nd}\p{Pc}²³¹¼-¾)";
constexpr std::pair<std::string_view, std::string_view> kPosixClasses[] = {
    {"[:alpha:]", R"(\p{Alphabetic})"}, {"[:alnum:]", R"(\p{Alphabetic}\p{Nd})"},
    {"[:upper:]", R"(\p{Uppercase})"},  {"[:lower:]", R"(\p{Lowercase})"},
    {"[:punct:]", R"(\p{P}\p{S})"},     {"[:word:]", kWordInSet}};

/// Translates an expression from Oniguruma's dialect (Ruby's), which Hugging Face's tokenizers
/// uses, to PCRE2. In that dialect, nested sets are unions, (?m) lets a dot match a line end, and
/// {1,3}+ repeats {1,3}.
class RubyDialect {
 public:
  explicit RubyDialect(std::string_view expression) : text_(expression) {}
  std::string translated() {
    while (at_ < text_.size()) sets_ > 0 ? pass_in_set() : pass();
    return std::move(result_);
  }

 private:
  std::string_view rest() const { return text_.substr(at_); }
  char next() const { return at_ + 1 < text_.size() ? text_[at_ + 1] : '\0'; }
  void copy(std::size_t bytes) {
    result_ += text_.substr(at_, bytes);
    at_ += bytes;
  }
  void replace(std::size_t bytes, std::string_view content) {
    result_ += content;
    at_ += bytes;
  }
  [[noreturn]] void refuse(const char* what) const {
    throw DataError(concat(what, " at byte ", at_, " is not supported"));
  }

  void pass() {
    if (text_[at_] == '\\') return pass_escape();
    if (text_[at_] == '{') return pass_count();
    if (rest().starts_with("(*")) refuse("(*");
    if (rest().starts_with("(?")) return pass_group();
    if (text_[at_] == '[') {
      sets_ = 1;
      copy(next() == '^' ? 2 : 1);
      if (rest().starts_with(']')) replace(1, R"(\])");
      return;
    }
    copy(1);
  }

  void pass_in_set() {
    const char byte = text_[at_];
    if (byte == '\\') return pass_escape();
    if (rest().starts_with("&&")) refuse("&&");
    if (rest().starts_with("[:")) {
      for (const auto& [name, content] : kPosixClasses)
        if (rest().starts_with(name)) return replace(name.size(), content);
      if (rest().starts_with("[:^")) refuse("a negated class in a set");
      if (const std::size_t end = rest().find(":]"); end != std::string_view::npos)
        return copy(end + 2);
    }
    if (byte == '[') {
      if (next() == '^') refuse("a negated set in a set");
      ++sets_;
      ++at_;
    } else if (byte == ']') {
      --sets_ == 0 ? copy(1) : replace(1, "");
    } else if (byte == '-' && (next() == '[' || next() == ']' || text_[at_ - 1] == '[')) {
      replace(1, R"(\-)");
    } else {
      copy(1);
    }
  }

  void pass_escape() {
    for (const auto& [letter, outside, in_set] : kEscapes) {
      if (next() != letter) continue;
      const std::string_view content = sets_ > 0 ? in_set : outside;
      if (content.empty()) refuse("a negated class in a set");
      return replace(2, replace_all(content, "@", sets_ > 0 ? kWordInSet : kWord));
    }
    if (next() == 'u' && at_ + 6 <= text_.size())
      return replace(6, concat(R"(\x{)", text_.substr(at_ + 2, 4), "}"));
    const bool has_name = at_ + 2 < text_.size() && text_[at_ + 2] == '{' &&
                          std::string_view("pPxgko").find(next()) != std::string_view::npos;
    const std::size_t end = has_name ? rest().find('}') : 1;
    copy(std::min(end == std::string_view::npos ? 2 : end + 1, rest().size()));
  }

  /// Translates {2}, {1,3} or {,3}; other braces are characters.
  void pass_count() {
    const std::size_t end = rest().find_first_not_of("0123456789,", 1);
    const bool is_count = end != std::string_view::npos && end > 1 && rest()[end] == '}';
    if (!is_count) return copy(1);
    const std::string_view count = rest().substr(0, end + 1);
    const char after = end + 1 < rest().size() ? rest()[end + 1] : '\0';
    if (after == '+' || (after == '?' && count.find(',') == std::string_view::npos))
      refuse("a nested repetition");
    if (next() == ',') replace(1, "{0");
    copy(next() == ',' || result_.ends_with("{0") ? count.size() - 1 : count.size());
  }

  /// Translates the flags of a group. The flag m becomes PCRE2's s.
  void pass_group() {
    const std::size_t end = rest().find_first_not_of("imx-", 2);
    const bool has_flags =
        end != std::string_view::npos && (rest()[end] == ':' || rest()[end] == ')');
    if (!has_flags) return copy(2);
    std::string flags(rest().substr(0, end));
    std::ranges::replace(flags, 'm', 's');
    replace(end, flags);
  }

  const std::string_view text_;
  std::size_t at_ = 0;
  std::size_t sets_ = 0;  // open brackets
  std::string result_;
};

std::string message_of(int code) {
  PCRE2_UCHAR text[256];
  pcre2_get_error_message(code, text, sizeof(text));
  return reinterpret_cast<const char*>(text);
}

PCRE2_SPTR bytes_of(std::string_view text) { return reinterpret_cast<PCRE2_SPTR>(text.data()); }

}  // namespace

class CompiledExpression {
 public:
  explicit CompiledExpression(const std::string& expression) : expression_(expression) {
    const std::string text = RubyDialect(expression).translated();
    int error = 0;
    PCRE2_SIZE offset = 0;
    // ^ and $ match at lines in that dialect.
    code_.reset(pcre2_compile(bytes_of(text), text.size(),
                              PCRE2_UTF | PCRE2_UCP | PCRE2_MULTILINE | PCRE2_NEVER_BACKSLASH_C,
                              &error, &offset, nullptr));
    if (!code_) throw DataError(concat(message_of(error), " at byte ", offset, " of ", text));
    has_machine_code_ = pcre2_jit_compile(code_.get(), PCRE2_JIT_COMPLETE) == 0;
    pcre2_set_match_limit(context_.get(), kMaxSteps);
    pcre2_set_heap_limit(context_.get(), kMaxKib);
  }
  const pcre2_code* code() const { return code_.get(); }
  bool find(std::string_view text, std::size_t at, pcre2_match_data* data) const {
    const auto find_by = [&](auto match, std::uint32_t options) {
      return match(code_.get(), bytes_of(text), text.size(), at, options, data, context_.get());
    };
    int found = has_machine_code_ ? find_by(pcre2_jit_match, 0) : PCRE2_ERROR_JIT_STACKLIMIT;
    if (found == PCRE2_ERROR_JIT_STACKLIMIT)
      found = find_by(pcre2_match, PCRE2_NO_UTF_CHECK | PCRE2_NO_JIT);
    if (found < 0 && found != PCRE2_ERROR_NOMATCH)
      throw DataError(concat(
          "the tokenizer's pattern ", expression_, " cannot be matched against a text of ",
          text.size(), " bytes: ", message_of(found), "; want a pattern with less lookahead"));
    return found >= 0;
  }

 private:
  static constexpr std::uint32_t kMaxSteps = 10'000'000, kMaxKib = 256 * 1024;
  struct Free {
    void operator()(pcre2_code* code) const { pcre2_code_free(code); }
    void operator()(pcre2_match_context* context) const { pcre2_match_context_free(context); }
  };
  std::string expression_;
  std::unique_ptr<pcre2_code, Free> code_;
  bool has_machine_code_ = false;  // else it is interpreted, and also if the stack is too small
  std::unique_ptr<pcre2_match_context, Free> context_{pcre2_match_context_create(nullptr)};
};

struct WordMatches::Search {
  explicit Search(const CompiledExpression& expression)
      : data(pcre2_match_data_create_from_pattern(expression.code(), nullptr)) {}
  ~Search() { pcre2_match_data_free(data); }
  pcre2_match_data* data;
  std::string copy;
};

WordMatches::WordMatches(const CompiledExpression& expression, std::string_view text)
    : expression_(expression), text_(text), search_(std::make_unique<Search>(expression)) {}

WordMatches::~WordMatches() = default;

bool WordMatches::begin_run() {
  begin_ += run_.size();
  begin_ += invalid_utf8_bytes(text_, begin_);
  run_ = known_to_pcre2(text_.substr(begin_, valid_utf8_bytes(text_, begin_)), search_->copy);
  at_ = 0;
  last_end_.reset();
  return !run_.empty();
}

std::optional<std::pair<std::size_t, std::size_t>> WordMatches::next() {
  for (;;) {
    if (at_ > run_.size() && !begin_run()) return {};
    if (!expression_.find(run_, at_, search_->data)) {
      at_ = run_.size() + 1;
      continue;
    }
    const PCRE2_SIZE* ends = pcre2_get_ovector_pointer(search_->data);
    if (ends[0] == ends[1] && last_end_ == ends[1]) {  // empty, right after the last match
      at_ = ends[1] + std::max<std::size_t>(decode_utf8(run_, ends[1]).bytes, 1);
      continue;
    }
    last_end_ = at_ = ends[1];
    return std::pair{begin_ + ends[0], begin_ + ends[1]};
  }
}

WordSplitter::WordSplitter(const std::string& expression)
    : expression_(std::make_shared<const CompiledExpression>(expression)) {
  for (int i = 0; (pattern_ = WordPattern{i}) != WordPattern::kOther; ++i)
    if (word_expression(pattern_) == expression) return;
}

std::vector<std::pair<std::size_t, std::size_t>> WordSplitter::matches(
    std::string_view text) const {
  std::vector<std::pair<std::size_t, std::size_t>> found;
  WordMatches matches(*expression_, text);
  while (const auto match = matches.next()) found.push_back(*match);
  return found;
}

}  // namespace hybrid_trainer
