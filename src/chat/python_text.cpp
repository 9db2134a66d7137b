#include "src/chat/python_text.h"

#include <algorithm>
#include <array>
#include <charconv>
#include <cmath>
#include <cstdio>
#include <cstring>
#include <set>

#include "hybrid_trainer/core/error.h"
#include "hybrid_trainer/files/utf8.h"
#include "src/chat/value.h"

namespace hybrid_trainer::jinja {

namespace {

/// Whether repr() writes a code point from U+007F on as an escape: control, format, private and
/// separating characters. Code points that Unicode has not assigned are written as they are.
bool is_escaped(char32_t value) {
  struct Range {
    char32_t first, last;
  };
  static constexpr Range kEscaped[] = {
      {0x7F, 0xA0},       {0xAD, 0xAD},       {0x600, 0x605},     {0x61C, 0x61C},
      {0x6DD, 0x6DD},     {0x70F, 0x70F},     {0x890, 0x891},     {0x8E2, 0x8E2},
      {0x1680, 0x1680},   {0x180E, 0x180E},   {0x2000, 0x200F},   {0x2028, 0x202F},
      {0x205F, 0x206F},   {0x3000, 0x3000},   {0xE000, 0xF8FF},   {0xFEFF, 0xFEFF},
      {0xFFF9, 0xFFFB},   {0x110BD, 0x110BD}, {0x110CD, 0x110CD}, {0x13430, 0x1343F},
      {0x1BCA0, 0x1BCA3}, {0x1D173, 0x1D17A}, {0xE0001, 0xE007F}, {0xF0000, 0x10FFFF}};
  return std::any_of(std::begin(kEscaped), std::end(kEscaped), [&](const Range& range) {
    return value >= range.first && value <= range.last;
  });
}

std::string escape(const char* format, unsigned value) {
  std::array<char, 16> buffer{};
  std::snprintf(buffer.data(), buffer.size(), format, value);
  return buffer.data();
}

}  // namespace

bool is_python_space(char32_t value) {
  return (value >= 0x09 && value <= 0x0D) || (value >= 0x1C && value <= 0x20) || value == 0x85 ||
         value == 0xA0 || value == 0x1680 || (value >= 0x2000 && value <= 0x200A) ||
         value == 0x2028 || value == 0x2029 || value == 0x202F || value == 0x205F ||
         value == 0x3000;
}

std::string_view character_at(std::string_view text, std::size_t at) {
  return text.substr(at, std::max<std::size_t>(1, decode_utf8(text, at).bytes));
}

std::size_t moved(std::string_view text, std::size_t byte, std::int64_t characters) {
  for (; characters > 0; --characters) byte += character_at(text, byte).size();
  for (; characters < 0; ++characters)
    while (byte > 0 && is_continuation(text[--byte])) continue;
  return byte;
}

std::size_t position_of(std::string_view text, std::string_view part) {
  const void* found = ::memmem(text.data(), text.size(), part.data(), part.size());
  return found == nullptr ? std::string_view::npos
                          : static_cast<std::size_t>(static_cast<const char*>(found) - text.data());
}

std::int64_t count_characters(std::string_view text) {
  return std::count_if(text.begin(), text.end(), [](char c) { return !is_continuation(c); });
}

std::string stripped(std::string_view text, Side side,
                     const std::optional<std::string>& characters) {
  std::set<std::string_view> going;
  for (std::size_t at = 0; characters && at < characters->size();)
    at += going.insert(character_at(*characters, at)).first->size();
  const auto goes = [&](std::string_view character) {
    if (!characters) return is_python_space(decode_utf8(character, 0).value);
    return going.contains(character);
  };
  while (side != Side::kRight && !text.empty() && goes(character_at(text, 0)))
    text.remove_prefix(character_at(text, 0).size());
  while (side != Side::kLeft && !text.empty()) {
    std::size_t last = text.size() - 1;
    while (last > 0 && is_continuation(text[last])) --last;
    if (!goes(text.substr(last))) break;
    text.remove_suffix(text.size() - last);
  }
  return std::string(text);
}

std::size_t leading_space(std::string_view text) {
  std::size_t at = 0;
  while (at < text.size() && is_python_space(decode_utf8(text, at).value))
    at += character_at(text, at).size();
  return at;
}

std::vector<std::string> split(std::string_view text, const std::optional<std::string>& separator,
                               std::int64_t limit) {
  std::vector<std::string> parts;
  const auto may_split = [&] {
    want_room(parts.size() * sizeof(Value), "split: a list");
    return limit < 0 || std::ssize(parts) < limit;
  };
  if (separator) {
    if (separator->empty()) throw Problem("split: the separator is empty");
    for (std::size_t at; may_split() && (at = position_of(text, *separator)) != text.npos;) {
      parts.emplace_back(text.substr(0, at));
      text.remove_prefix(at + separator->size());
    }
    parts.emplace_back(text);
    return parts;
  }
  for (text.remove_prefix(leading_space(text)); !text.empty();
       text.remove_prefix(leading_space(text))) {
    std::size_t end = 0;
    while (end < text.size() && !is_python_space(decode_utf8(text, end).value))
      end += character_at(text, end).size();
    if (!may_split()) end = text.size();
    parts.emplace_back(text.substr(0, end));
    text.remove_prefix(end);
  }
  return parts;
}

std::string replaced(std::string_view text, std::string_view from, std::string_view to,
                     std::int64_t limit) {
  std::string result;
  std::size_t at = 0;
  for (std::int64_t i = 0; limit < 0 || i < limit; ++i) {
    const std::size_t found = position_of(text.substr(at), from);
    if (found == std::string_view::npos) break;
    want_room(result.size() + found + to.size(), "replace: a text");
    result.append(text.substr(at, found)).append(to);
    at += found + from.size();
    if (!from.empty()) continue;
    if (at == text.size()) break;  // an empty text stands before each character and at the end
    result.append(character_at(text, at));
    at += character_at(text, at).size();
  }
  return result.append(text.substr(std::min(at, text.size())));
}

std::string in_case(std::string_view text, Case wanted) {
  std::string result(text);
  bool upper = wanted != Case::kLower;
  for (char& c : result) {
    if (static_cast<unsigned char>(c) >= 0x80)
      throw Problem(concat("upper and lower case are known of ASCII alone, not of \"",
                           shortened(text), "\""));
    if (upper && c >= 'a' && c <= 'z') c = static_cast<char>(c - 'a' + 'A');
    if (!upper && c >= 'A' && c <= 'Z') c = static_cast<char>(c - 'A' + 'a');
    const bool is_letter = (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z');
    upper = wanted == Case::kUpper || (wanted == Case::kTitle && !is_letter);
  }
  return result;
}

std::string shortened(std::string_view text, std::size_t bytes) {
  if (text.size() <= bytes) return std::string(text);
  return std::string(text.substr(0, whole_characters(text, bytes))) + "…";
}

std::string float_text(double value) {
  if (std::isnan(value)) return "nan";
  if (std::isinf(value)) return value < 0 ? "-inf" : "inf";
  std::array<char, 400> buffer{};
  const auto written = [&](std::chars_format format) {
    const auto end = std::to_chars(buffer.data(), buffer.data() + buffer.size(), value, format).ptr;
    return std::string(buffer.data(), end);
  };
  const std::string scientific = written(std::chars_format::scientific);
  const int exponent = std::stoi(scientific.substr(scientific.find('e') + 1));
  if (exponent < -4 || exponent >= 16) return scientific;
  const std::string fixed = written(std::chars_format::fixed);
  return fixed.find('.') == std::string::npos ? fixed + ".0" : fixed;
}

std::string quoted_text(std::string_view text) {
  const bool has_single = text.find('\'') != std::string_view::npos;
  const char quote = has_single && text.find('"') == std::string_view::npos ? '"' : '\'';
  std::string result(1, quote);
  for (std::size_t at = 0; at < text.size();) {
    const std::string_view character = character_at(text, at);
    const char32_t value = decode_utf8(character, 0).value;
    at += character.size();
    want_room(result.size(), "a text in quotes");
    if (character[0] == quote || value == '\\') {
      (result += '\\') += character;
    } else if (value == '\n' || value == '\r' || value == '\t') {
      result += value == '\n' ? "\\n" : value == '\r' ? "\\r" : "\\t";
    } else if (value < 0x20 || is_escaped(value)) {
      result += escape(value < 0x100 ? "\\x%02x" : value < 0x10000 ? "\\u%04x" : "\\U%08x", value);
    } else {
      result += character;
    }
  }
  return result + quote;
}

std::string json_quoted(std::string_view text, bool ascii) {
  static constexpr std::string_view kPlain = "\"\\\n\r\t\f\b", kLetters = "\"\\nrtfb";
  std::string result = "\"";
  for (std::size_t at = 0; at < text.size();) {
    const std::string_view character = character_at(text, at);
    const char32_t value = decode_utf8(character, 0).value;
    at += character.size();
    want_room(result.size(), "a text in quotes");
    if (const auto plain = kPlain.find(character); plain != std::string_view::npos) {
      (result += '\\') += kLetters[plain];
    } else if (value < 0x20 || (ascii && value >= 0x7F && value < 0x10000)) {
      result += escape("\\u%04x", value);
    } else if (ascii && value >= 0x10000) {
      result += escape("\\u%04x", 0xD800 + ((value - 0x10000) >> 10));
      result += escape("\\u%04x", 0xDC00 + ((value - 0x10000) & 0x3FF));
    } else {
      result += character;
    }
  }
  return result + "\"";
}

}  // namespace hybrid_trainer::jinja
