#include "src/data/byte_symbols.h"

#include <algorithm>
#include <numeric>

#include "hybrid_trainer/files/utf8.h"

namespace hybrid_trainer {

std::array<char32_t, 256> byte_symbols() {
  std::array<char32_t, 256> symbols{};
  char32_t next = 256;
  for (char32_t byte = 0; byte < 256; ++byte) {
    const bool printable =
        (byte >= 33 && byte <= 126) || (byte >= 161 && byte <= 172) || byte >= 174;
    symbols[byte] = printable ? byte : next++;
  }
  return symbols;
}

std::array<std::uint8_t, 256> bytes_by_symbol() {
  const auto symbols = byte_symbols();
  std::array<std::uint8_t, 256> bytes{};
  std::iota(bytes.begin(), bytes.end(), std::uint8_t{0});
  std::ranges::sort(bytes, {}, [&](std::uint8_t byte) { return symbols[byte]; });
  return bytes;
}

ByteSymbolCoder::ByteSymbolCoder() : symbols_(byte_symbols()) {
  bytes_.fill(-1);
  for (int byte = 0; byte < 256; ++byte) bytes_[symbols_[static_cast<std::size_t>(byte)]] = byte;
}

std::string ByteSymbolCoder::to_symbols(std::string_view bytes) const {
  std::string text;
  for (const char byte : bytes) append_utf8(symbols_[static_cast<unsigned char>(byte)], text);
  return text;
}

std::optional<std::string> ByteSymbolCoder::to_bytes(std::string_view symbols) const {
  std::string bytes;
  for (std::size_t i = 0; i < symbols.size();) {
    const CodePoint symbol = decode_utf8(symbols, i);
    if (symbol.bytes == 0 || symbol.value >= kEnd || bytes_[symbol.value] < 0) return {};
    bytes.push_back(static_cast<char>(bytes_[symbol.value]));
    i += symbol.bytes;
  }
  return bytes;
}

}  // namespace hybrid_trainer
