#include "src/distributed/hmac.h"

#include <sodium.h>
#include <sys/random.h>

#include "hybrid_trainer/core/error.h"

namespace hybrid_trainer {

Digest hmac_sha256(std::string_view key, std::string_view message) {
  const auto bytes = [](std::string_view text) {
    return reinterpret_cast<const unsigned char*>(text.data());
  };
  crypto_auth_hmacsha256_state state;
  crypto_auth_hmacsha256_init(&state, bytes(key), key.size());
  crypto_auth_hmacsha256_update(&state, bytes(message), message.size());
  Digest digest{};
  crypto_auth_hmacsha256_final(&state, digest.data());
  return digest;
}

bool same_digest(const Digest& left, const Digest& right) {
  return sodium_memcmp(left.data(), right.data(), left.size()) == 0;
}

std::string random_bytes(std::size_t count) {
  std::string bytes(count, '\0');
  if (::getentropy(bytes.data(), count) != 0)
    throw DeviceError("the system has no random numbers (getentropy)");
  return bytes;
}

}  // namespace hybrid_trainer
