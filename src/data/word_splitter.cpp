#define PCRE2_CODE_UNIT_WIDTH 8
#include "word_splitter.h"

#include <pcre2.h>

#include <string>

#include "hybrid_trainer/core/error.h"
#include "hybrid_trainer/files/utf8.h"

namespace hybrid_trainer {

namespace {

/// GPT-2's pattern, 's|'t|'re|'ve|'m|'ll|'d| ?\p{L}+| ?\p{N}+| ?[^\s\p{L}\p{N}]+|\s+(?!\S)|\s+,
/// with the 25 white-space characters of Unicode written out: PCRE2's \s has U+180E in addition.
std::string pattern_text() {
  const std::string spaces =
      R"(\t-\r \x{85}\x{A0}\x{1680}\x{2000}-\x{200A}\x{2028}\x{2029}\x{202F}\x{205F}\x{3000})";
  return R"('s|'t|'re|'ve|'m|'ll|'d| ?\p{L}+| ?\p{N}+| ?[^)" + spaces + R"(\p{L}\p{N}]+|[)" +
         spaces + R"(]+(?![^)" + spaces + R"(])|[)" + spaces + R"(]+)";
}

}  // namespace

bool is_white_space(char32_t value) {
  switch (value) {
    case U' ':
    case 0x85:
    case 0xA0:
    case 0x1680:
    case 0x2028:
    case 0x2029:
    case 0x202F:
    case 0x205F:
    case 0x3000:
      return true;
    default:
      return (value >= U'\t' && value <= U'\r') || (value >= 0x2000 && value <= 0x200A);
  }
}

struct WordSplitter::Pattern {
  pcre2_code* code = nullptr;
  pcre2_match_data* match = nullptr;
  ~Pattern() {
    pcre2_match_data_free(match);
    pcre2_code_free(code);
  }
};

WordSplitter::WordSplitter() : pattern_(std::make_unique<Pattern>()) {
  const std::string pattern = pattern_text();
  int error = 0;
  PCRE2_SIZE error_offset = 0;
  pattern_->code =
      pcre2_compile(reinterpret_cast<PCRE2_SPTR>(pattern.data()), pattern.size(),
                    PCRE2_UTF | PCRE2_UCP | PCRE2_ANCHORED, &error, &error_offset, nullptr);
  require(pattern_->code != nullptr, "PCRE2 does not take GPT-2's pattern");
  // If PCRE2 has no JIT for this processor, pcre2_match interprets the pattern.
  pcre2_jit_compile(pattern_->code, PCRE2_JIT_COMPLETE);
  pattern_->match = pcre2_match_data_create(1, nullptr);
}

WordSplitter::~WordSplitter() = default;

void WordSplitter::start(std::string_view text) {
  text_ = text;
  position_ = word_end_ = run_begin_ = run_end_ = 0;
  divided_bytes_ = 0;
}

std::string_view WordSplitter::next() {
  if (!goes_on()) {
    word_end_ = find_word_end();
    const std::size_t bytes = word_end_ - position_;
    if (bytes > kLongestWord) divided_bytes_ += static_cast<std::int64_t>(bytes);
  }
  const std::string_view rest = text_.substr(position_, word_end_ - position_);
  const std::size_t most = kLongestWord + (rest.starts_with(' ') ? 1 : 0);
  const std::string_view word = rest.substr(0, whole_characters(rest, most));
  position_ += word.size();
  return word;
}

std::size_t WordSplitter::find_word_end() {
  if (position_ == text_.size()) return position_;
  if (position_ == run_end_) {
    run_begin_ = position_;
    run_end_ = position_ + valid_utf8_bytes(text_, position_);
    if (run_end_ == position_) {
      run_end_ = position_ + invalid_utf8_bytes(text_, position_);
      return run_end_;
    }
  }
  const int found = pcre2_match(
      pattern_->code, reinterpret_cast<PCRE2_SPTR>(text_.data() + run_begin_),
      run_end_ - run_begin_, position_ - run_begin_, PCRE2_NO_UTF_CHECK, pattern_->match, nullptr);
  if (found < 1) {
    throw Error(ExitCode::kInternal, concat("PCRE2 failed with ", found, " at byte ", position_,
                                            " of a text of ", text_.size()));
  }
  return run_begin_ + pcre2_get_ovector_pointer(pattern_->match)[1];
}

}  // namespace hybrid_trainer
