#include "hybrid_trainer/core/sha256.h"

#include <sodium.h>

namespace hybrid_trainer {

Digest sha256(std::string_view message) {
  Digest digest{};
  crypto_hash_sha256(digest.data(), reinterpret_cast<const unsigned char*>(message.data()),
                     message.size());
  return digest;
}

std::string hex_of(const Digest& digest) {
  std::string text;
  for (const std::uint8_t byte : digest)
    (text += "0123456789abcdef"[byte >> 4]) += "0123456789abcdef"[byte & 15];
  return text;
}

}  // namespace hybrid_trainer
