#include "src/data/text/unicode.h"

#include <algorithm>
#include <iterator>
#include <utility>
#include <vector>

#include "src/core/narrow.h"
#include "src/files/text.h"

namespace hybrid_trainer {

namespace {

/// A character that replaces each character of a run.
struct StandIn {
  char32_t first, last, other;
};

#include "src/data/text/unicode_classes.inc"

std::vector<std::uint8_t> classes_by_code_point() {
  std::vector<std::uint8_t> classes(0x110000);
  for (std::size_t i = 0; i < std::size(kClassRuns); ++i) {
    const std::size_t end = i + 1 < std::size(kClassRuns) ? kClassRuns[i + 1] >> 8 : classes.size();
    std::fill(classes.begin() + (kClassRuns[i] >> 8),
              classes.begin() + static_cast<std::ptrdiff_t>(end),
              narrow<std::uint8_t>(kClassRuns[i] & 0xFF));
  }
  return classes;
}

}  // namespace

const std::uint8_t* unicode_classes() {
  static const std::vector<std::uint8_t> classes = classes_by_code_point();
  return classes.data();
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

std::string to_nfc(std::string_view text) {
  std::string result;
  std::size_t begin = 0;  // start of the text not yet in the result
  bool composes = false;  // that text may not be in normalization form C
  const auto flush = [&](std::size_t end) {
    const std::string_view part = text.substr(begin, end - begin);
    if (composes) {
      result += in_unicode_form(part, UnicodeForm::kC);
    } else {
      result += part;
    }
    composes = false;
    begin = end;
  };
  for (std::size_t i = 0; i < text.size();) {
    const CodePoint found = decode_utf8(text, i);
    const std::size_t bytes = found.bytes == 0 ? 1 : found.bytes;
    if (found.bytes == 0 || (unicode_classes()[found.value] & kUnknownToNfc) != 0) {
      flush(i);
      result += text.substr(i, bytes);
      begin = i + bytes;
    } else if (found.value >= kFirstComposing) {
      composes = true;
    }
    i += bytes;
  }
  flush(text.size());
  return result;
}

}  // namespace hybrid_trainer
