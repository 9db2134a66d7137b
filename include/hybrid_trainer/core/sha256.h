#pragma once

#include <array>
#include <cstdint>
#include <string>
#include <string_view>

namespace hybrid_trainer {

using Digest = std::array<std::uint8_t, 32>;

/// FIPS 180-4.
Digest sha256(std::string_view message);
std::string hex_of(const Digest& digest);

}  // namespace hybrid_trainer
