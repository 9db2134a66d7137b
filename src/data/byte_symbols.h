#pragma once

#include <array>
#include <cstdint>
#include <optional>
#include <string>
#include <string_view>

namespace hybrid_trainer {

/// GPT-2's printable code point of each byte: bytes 33–126, 161–172 and 174–255 stand for
/// themselves, the others for 256, 257, … in increasing order. Source: openai/gpt-2, encoder.py,
/// bytes_to_unicode.
std::array<char32_t, 256> byte_symbols();

/// All bytes, in increasing order of their symbols: the ids of the first 256 tokens of GPT-2.
std::array<std::uint8_t, 256> bytes_by_symbol();

/// Bytes to symbols in UTF-8 and back; none if the text holds anything other than symbols.
class ByteSymbolCoder {
 public:
  ByteSymbolCoder();
  std::string to_symbols(std::string_view bytes) const;
  std::optional<std::string> to_bytes(std::string_view symbols) const;

 private:
  static constexpr char32_t kEnd = 324;  // one past the highest symbol
  std::array<char32_t, 256> symbols_;
  std::array<int, kEnd> bytes_;  // -1: no symbol
};

}  // namespace hybrid_trainer
