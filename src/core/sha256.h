#pragma once

#include <array>
#include <cstdint>
#include <optional>
#include <span>
#include <string>
#include <string_view>

namespace hybrid_trainer {

using Digest = std::array<std::uint8_t, 32>;

/// Computes SHA-256. Source: FIPS 180-4.
Digest sha256(std::string_view message);
std::string hex_of(std::span<const std::uint8_t> bytes);  // two lowercase digits each
std::string base64_of(std::span<const std::uint8_t> bytes);
/// Decodes padded base64. Returns nullopt if the text is not valid base64.
std::optional<std::string> bytes_of_base64(std::string_view text);

/// Computes HMAC-SHA-256. Source: RFC 2104.
Digest hmac_sha256(std::string_view key, std::string_view message);

bool same_digest(const Digest& left, const Digest& right);

/// Returns cryptographically secure random bytes. Throws DeviceError if the system has none.
std::string random_bytes(std::size_t count);

}  // namespace hybrid_trainer
