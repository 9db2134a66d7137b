#define PCRE2_CODE_UNIT_WIDTH 8
#include "word_splitter.h"

#include <pcre2.h>

#include <string>

#include "hybrid_trainer/core/error.h"
#include "utf8.h"

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
  // Where PCRE2 has no compiler for this processor, pcre2_match interprets the pattern.
  pcre2_jit_compile(pattern_->code, PCRE2_JIT_COMPLETE);
  pattern_->match = pcre2_match_data_create(1, nullptr);
}

WordSplitter::~WordSplitter() = default;

void WordSplitter::start(std::string_view text) {
  text_ = text;
  position_ = run_begin_ = run_end_ = 0;
}

std::string_view WordSplitter::next() {
  const std::size_t begin = position_;
  if (begin == text_.size()) return {};
  if (begin == run_end_) {
    run_begin_ = begin;
    run_end_ = begin + valid_utf8_bytes(text_, begin);
    if (run_end_ == begin) {
      run_end_ = position_ = begin + invalid_utf8_bytes(text_, begin);
      return text_.substr(begin, position_ - begin);
    }
  }
  const int found = pcre2_match(
      pattern_->code, reinterpret_cast<PCRE2_SPTR>(text_.data() + run_begin_),
      run_end_ - run_begin_, begin - run_begin_, PCRE2_NO_UTF_CHECK, pattern_->match, nullptr);
  if (found < 1) {
    throw Error(ExitCode::kInternal, concat("PCRE2 failed with ", found, " at byte ", begin,
                                            " of a text of ", text_.size()));
  }
  position_ = run_begin_ + pcre2_get_ovector_pointer(pattern_->match)[1];
  return text_.substr(begin, position_ - begin);
}

}  // namespace hybrid_trainer
