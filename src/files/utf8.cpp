#include "hybrid_trainer/files/utf8.h"

#include <algorithm>
#include <cstdint>
#include <cstring>

namespace hybrid_trainer {

Utf8Prefix utf8_prefix(std::string_view text, std::size_t position) {
  const auto byte = [&](std::size_t i) { return static_cast<unsigned char>(text[position + i]); };
  const unsigned char first = byte(0);
  if (first < 0x80) return {1, 1};
  if (first < 0xC2 || first > 0xF4) return {1, 0};
  const std::size_t length = first >= 0xF0 ? 4 : first >= 0xE0 ? 3 : 2;
  unsigned char low = 0x80, high = 0xBF;  // of the second byte (Unicode 15, table 3-7)
  if (first == 0xE0) low = 0xA0;
  if (first == 0xED) high = 0x9F;
  if (first == 0xF0) low = 0x90;
  if (first == 0xF4) high = 0x8F;
  const std::size_t end = std::min(length, text.size() - position);
  std::size_t bytes = 1;
  for (; bytes < end && byte(bytes) >= low && byte(bytes) <= high; ++bytes) low = 0x80, high = 0xBF;
  return {bytes, length};
}

CodePoint decode_utf8(std::string_view text, std::size_t position) {
  if (position == text.size()) return {};
  const auto [bytes, length] = utf8_prefix(text, position);
  if (bytes != length) return {};
  const auto byte = [&](std::size_t i) { return static_cast<unsigned char>(text[position + i]); };
  if (length == 1) return {byte(0), 1};
  char32_t value = byte(0) & (0x7Fu >> length);
  for (std::size_t i = 1; i < length; ++i) value = value << 6 | (byte(i) & 0x3Fu);
  return {value, length};
}

void append_utf8(char32_t value, std::string& text) {
  const auto push = [&](char32_t byte) { text.push_back(static_cast<char>(byte)); };
  const auto push_tail = [&](int shift) { push(0x80u | ((value >> shift) & 0x3Fu)); };
  if (value < 0x80) {
    push(value);
  } else if (value < 0x800) {
    push(0xC0u | value >> 6);
    push_tail(0);
  } else if (value < 0x10000) {
    push(0xE0u | value >> 12);
    push_tail(6);
    push_tail(0);
  } else {
    push(0xF0u | value >> 18);
    push_tail(12);
    push_tail(6);
    push_tail(0);
  }
}

std::size_t whole_characters(std::string_view text, std::size_t limit) {
  constexpr std::size_t kLongestTail = 3;
  if (text.size() <= limit) return text.size();
  std::size_t end = limit;
  while (end > 0 && limit - end < kLongestTail && is_continuation(text[end])) --end;
  return end == 0 || is_continuation(text[end]) ? limit : end;
}

std::size_t valid_utf8_bytes(std::string_view text, std::size_t position) {
  std::size_t i = position;
  while (i < text.size()) {
    std::uint64_t eight;
    while (i + sizeof(eight) <= text.size()) {
      std::memcpy(&eight, text.data() + i, sizeof(eight));
      if ((eight & 0x8080808080808080u) != 0) break;
      i += sizeof(eight);
    }
    const std::size_t bytes = decode_utf8(text, i).bytes;
    if (bytes == 0) break;
    i += bytes;
  }
  return i - position;
}

std::string well_formed_utf8(std::string_view text) {
  std::string out;
  for (std::size_t at = 0;;) {
    const std::size_t valid = valid_utf8_bytes(text, at);
    out += text.substr(at, valid);
    at += valid;
    if (at == text.size()) return out;
    append_utf8(0xFFFD, out);
    ++at;
  }
}

std::size_t invalid_utf8_bytes(std::string_view text, std::size_t position) {
  std::size_t i = position;
  while (i < text.size() && decode_utf8(text, i).bytes == 0) ++i;
  return i - position;
}

}  // namespace hybrid_trainer
