#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <string>
#include <string_view>

namespace hybrid_trainer {

using Digest = std::array<std::uint8_t, 32>;
inline constexpr std::size_t kSha256Block = 64;

/// FIPS 180-4.
Digest sha256(std::string_view message);
std::string hex_of(const Digest& digest);

}  // namespace hybrid_trainer
