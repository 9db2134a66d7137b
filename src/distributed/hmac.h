#pragma once

#include <string>
#include <string_view>

#include "hybrid_trainer/core/sha256.h"

namespace hybrid_trainer {

/// RFC 2104.
Digest hmac_sha256(std::string_view key, std::string_view message);

/// Constant-time comparison.
bool same_digest(const Digest& left, const Digest& right);

/// So many bytes that nobody can guess. Throws DeviceError where the system has none.
std::string random_bytes(std::size_t count);

}  // namespace hybrid_trainer
