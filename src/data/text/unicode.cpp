#include "src/data/text/unicode.h"

#include <utf8proc.h>

#include <iterator>
#include <span>

#include "src/core/narrow.h"
#include "src/files/text.h"

namespace hybrid_trainer {

namespace {

/// A character that replaces each character of a run.
struct StandIn {
  char32_t first, last, other;
};

/// Distance to the lower case of each character of a run.
struct LowerCase {
  char32_t first, last;
  std::int32_t distance;
};

#include "src/data/text/unicode_classes.inc"

std::vector<std::uint8_t> by_code_point(std::span<const std::uint32_t> runs) {
  std::vector<std::uint8_t> classes(0x110000);
  for (std::size_t i = 0; i < runs.size(); ++i) {
    const std::size_t end = i + 1 < runs.size() ? runs[i + 1] >> 8 : classes.size();
    std::fill(classes.begin() + (runs[i] >> 8), classes.begin() + static_cast<std::ptrdiff_t>(end),
              narrow<std::uint8_t>(runs[i] & 0xFF));
  }
  return classes;
}

}  // namespace

const std::uint8_t* unicode_classes() {
  static const std::vector<std::uint8_t> classes = by_code_point(kClassRuns);
  return classes.data();
}

const std::uint8_t* character_traits() {
  static const std::vector<std::uint8_t> traits = by_code_point(kTraitRuns);
  return traits.data();
}

std::string_view known_to_pcre2(std::string_view text, std::string& copy) {
  const std::uint8_t* classes = unicode_classes();
  bool is_copied = false;
  for (std::size_t i = 0; i < text.size();) {
    const auto byte = [&](std::size_t k) { return static_cast<unsigned char>(text[i + k]); };
    if (byte(0) < 0xE0) {  // characters that are new to PCRE2 take at least three bytes
      ++i;
      continue;
    }
    const std::size_t bytes = byte(0) < 0xF0 ? 3 : 4;
    char32_t value = byte(0) & (0x7Fu >> bytes);
    for (std::size_t k = 1; k < bytes; ++k) value = value << 6 | (byte(k) & 0x3Fu);
    if ((classes[value] & kNewToPcre2) != 0) {
      if (!std::exchange(is_copied, true)) copy = text;
      std::string other;
      append_utf8((std::ranges::upper_bound(kStandIns, value, {}, &StandIn::first) - 1)->other,
                  other);
      copy.replace(i, bytes, other);
    }
    i += bytes;
  }
  return is_copied ? copy : text;
}

std::string to_form(std::string_view text, UnicodeForm form) {
  const bool is_compatible = form == UnicodeForm::kKC || form == UnicodeForm::kKD;
  const std::uint8_t* table = is_compatible ? character_traits() : unicode_classes();
  const int unknown = is_compatible ? int{kUnknownToNfkc} : int{kUnknownToNfc};
  const char32_t first_changing = form == UnicodeForm::kC ? kFirstComposing : 0x80;
  std::string result;
  std::size_t begin = 0;  // start of the text not yet in the result
  bool changes = false;   // that text may not be in the form
  const auto flush = [&](std::size_t end) {
    const std::string_view part = text.substr(begin, end - begin);
    if (changes) {
      result += in_unicode_form(part, form);
    } else {
      result += part;
    }
    changes = false;
    begin = end;
  };
  for_each_character(text, [&](CodePoint found, std::size_t at, std::size_t end) {
    if (found.bytes == 0 || (table[found.value] & unknown) != 0) {
      flush(at);
      result += text.substr(at, end - at);
      begin = end;
    } else if (found.value >= first_changing) {
      changes = true;
    }
  });
  flush(text.size());
  return result;
}

std::string lowercased(std::string_view text) {
  std::string result;
  for_each_character(text, [&](CodePoint found, std::size_t at, std::size_t) {
    if (found.bytes == 0) {
      result += text[at];
      return;
    }
    if (found.value == U'\u0130') {  // the only one whose lower case is two characters
      result += "i\u0307";
      return;
    }
    const auto run = std::ranges::find_if(kLowerCase, [&](const LowerCase& one) {
      return found.value >= one.first && found.value <= one.last;
    });
    const auto value = static_cast<utf8proc_int32_t>(found.value);
    const utf8proc_int32_t lower =
        run != std::end(kLowerCase) ? value + run->distance : utf8proc_tolower(value);
    append_utf8(static_cast<char32_t>(lower), result);
  });
  return result;
}

}  // namespace hybrid_trainer
