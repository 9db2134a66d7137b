#include "hybrid_trainer/observability/json_writer.h"

#include <array>
#include <charconv>
#include <cmath>

namespace hybrid_trainer {
namespace {

/// Bytes of the well-formed UTF-8 sequence (RFC 3629) at the start of `text`, or 0 for none.
std::size_t utf8_length(std::string_view text) {
  const auto byte = [&](std::size_t i) { return static_cast<unsigned char>(text[i]); };
  const unsigned char lead = byte(0);
  if (lead < 0x80) return 1;
  const std::size_t length = lead >= 0xF0 ? 4 : lead >= 0xE0 ? 3 : 2;
  if (lead < 0xC2 || lead > 0xF4 || text.size() < length) return 0;
  unsigned char low = 0x80, high = 0xBF;  // of the second byte: no overlong form, no surrogate
  if (lead == 0xE0) low = 0xA0;
  if (lead == 0xED) high = 0x9F;
  if (lead == 0xF0) low = 0x90;
  if (lead == 0xF4) high = 0x8F;
  for (std::size_t i = 1; i < length; ++i, low = 0x80, high = 0xBF) {
    if (byte(i) < low || byte(i) > high) return 0;
  }
  return length;
}

void append_escaped(std::string& out, char character) {
  static constexpr char kHex[] = "0123456789abcdef";
  switch (character) {
    case '"':
    case '\\':
      (out += '\\') += character;
      return;
    case '\n':
      out += "\\n";
      return;
    case '\t':
      out += "\\t";
      return;
    case '\r':
      out += "\\r";
      return;
    default:
      break;
  }
  const auto byte = static_cast<unsigned char>(character);
  if (byte >= 0x20 && byte != '<' && byte != 0x7F) {
    out += character;
  } else {
    ((out += "\\u00") += kHex[byte >> 4]) += kHex[byte & 15];
  }
}

}  // namespace

std::string json_string(std::string_view text) {
  std::string out = "\"";
  while (!text.empty()) {
    const std::size_t length = utf8_length(text);
    if (length == 1) {
      append_escaped(out, text[0]);
    } else {
      out += length == 0 ? std::string_view("\xEF\xBF\xBD") : text.substr(0, length);
    }
    text.remove_prefix(length == 0 ? 1 : length);
  }
  return out += '"';
}

void JsonWriter::begin_value(std::string_view key) {
  if (!first_) text_ += ',';
  first_ = false;
  if (!key.empty()) (text_ += json_string(key)) += ':';
}

void JsonWriter::open(std::string_view key, char bracket) {
  begin_value(key);
  text_ += bracket;
  first_ = true;
}

void JsonWriter::close(char bracket) {
  text_ += bracket;
  first_ = false;
}

void JsonWriter::number(std::string_view key, double value) {
  begin_value(key);
  std::array<char, 32> digits;
  const auto end = std::to_chars(digits.data(), digits.data() + digits.size(), value).ptr;
  text_ += std::isfinite(value) ? std::string_view(digits.data(), end) : std::string_view("null");
}

void JsonWriter::number(std::string_view key, double value, int digits) {
  begin_value(key);
  std::array<char, 64> text;
  const auto end = std::to_chars(text.data(), text.data() + text.size(), value,
                                 std::chars_format::general, digits)
                       .ptr;
  text_ += std::isfinite(value) ? std::string_view(text.data(), end) : std::string_view("null");
}

void JsonWriter::number(std::string_view key, const std::optional<double>& value) {
  if (value) return number(key, *value);
  begin_value(key);
  text_ += "null";
}

void JsonWriter::string(std::string_view key, std::string_view value) {
  begin_value(key);
  text_ += json_string(value);
}

void JsonWriter::boolean(std::string_view key, bool value) {
  begin_value(key);
  text_ += value ? "true" : "false";
}

}  // namespace hybrid_trainer
