#include "src/observability/crc32c.h"

#include <array>

namespace hybrid_trainer {
namespace {

constexpr std::uint32_t kReflectedPolynomial = 0x82F63B78;

/// The remainder of each byte.
constexpr std::array<std::uint32_t, 256> remainders() {
  std::array<std::uint32_t, 256> table{};
  for (std::uint32_t byte = 0; byte < table.size(); ++byte) {
    std::uint32_t rest = byte;
    for (int bit = 0; bit < 8; ++bit)
      rest = (rest >> 1) ^ ((rest & 1) != 0 ? kReflectedPolynomial : 0);
    table[byte] = rest;
  }
  return table;
}

constexpr std::array<std::uint32_t, 256> kRemainders = remainders();

}  // namespace

std::uint32_t crc32c(std::string_view bytes) {
  std::uint32_t rest = 0xFFFFFFFF;
  for (const char byte : bytes)
    rest = (rest >> 8) ^ kRemainders[(rest ^ static_cast<unsigned char>(byte)) & 0xFF];
  return ~rest;
}

}  // namespace hybrid_trainer
