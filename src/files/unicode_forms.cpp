#include "hybrid_trainer/files/unicode_forms.h"

#include <utf8proc.h>

#include <algorithm>
#include <vector>

#include "hybrid_trainer/core/error.h"
#include "hybrid_trainer/files/utf8.h"

namespace hybrid_trainer {

namespace {

using Characters = std::vector<utf8proc_int32_t>;

[[noreturn]] void fail(utf8proc_ssize_t code) {
  throw Error(ExitCode::kInternal, utf8proc_errmsg(code));
}

void append_decomposed(utf8proc_int32_t character, utf8proc_option_t options, Characters& to) {
  constexpr std::size_t kLongest = 32;  // 18 in Unicode 15
  const std::size_t before = to.size();
  to.resize(before + kLongest);
  int boundary = 0;  // of graphemes, which are not looked for
  const utf8proc_ssize_t count =
      utf8proc_decompose_char(character, &to[before], kLongest, options, &boundary);
  if (count < 0) fail(count);
  to.resize(before + static_cast<std::size_t>(count));
}

/// utf8proc_decompose does so by exchanging neighbors, in quadratic time.
void sort_marks(Characters& characters) {
  const auto mark_class = [](utf8proc_int32_t character) {
    return utf8proc_get_property(character)->combining_class;
  };
  const auto is_mark = [&](utf8proc_int32_t character) { return mark_class(character) != 0; };
  for (auto begin = characters.begin(); begin != characters.end();) {
    begin = std::find_if(begin, characters.end(), is_mark);
    const auto end = std::find_if_not(begin, characters.end(), is_mark);
    std::ranges::stable_sort(begin, end, {}, mark_class);
    begin = end;
  }
}

}  // namespace

std::string in_unicode_form(std::string_view text, UnicodeForm form) {
  const auto options = static_cast<utf8proc_option_t>(
      UTF8PROC_STABLE | UTF8PROC_COMPOSE | (form == UnicodeForm::kKC ? UTF8PROC_COMPAT : 0));
  Characters characters;
  characters.reserve(text.size());
  for (std::size_t at = 0; at < text.size();) {
    const CodePoint found = decode_utf8(text, at);
    if (found.bytes == 0) fail(UTF8PROC_ERROR_INVALIDUTF8);
    append_decomposed(static_cast<utf8proc_int32_t>(found.value), options, characters);
    at += found.bytes;
  }
  sort_marks(characters);
  const utf8proc_ssize_t count =
      utf8proc_normalize_utf32(characters.data(), std::ssize(characters), options);
  if (count < 0) fail(count);
  std::string composed;
  for (utf8proc_ssize_t i = 0; i < count; ++i)
    append_utf8(static_cast<char32_t>(characters[static_cast<std::size_t>(i)]), composed);
  return composed;
}

}  // namespace hybrid_trainer
