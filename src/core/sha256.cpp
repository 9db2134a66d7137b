#include "src/core/sha256.h"

#include <sodium.h>
#include <sys/random.h>

#include "hybrid_trainer/core/error.h"

namespace hybrid_trainer {

Digest sha256(std::string_view message) {
  Digest digest{};
  crypto_hash_sha256(digest.data(), reinterpret_cast<const unsigned char*>(message.data()),
                     message.size());
  return digest;
}

std::string hex_of(std::span<const std::uint8_t> bytes) {
  std::string text(2 * bytes.size() + 1, '\0');
  sodium_bin2hex(text.data(), text.size(), bytes.data(), bytes.size());
  text.pop_back();  // NUL
  return text;
}

std::string base64_of(std::span<const std::uint8_t> bytes) {
  constexpr int kForm = sodium_base64_VARIANT_ORIGINAL;
  std::string text(sodium_base64_encoded_len(bytes.size(), kForm), '\0');
  sodium_bin2base64(text.data(), text.size(), bytes.data(), bytes.size(), kForm);
  text.pop_back();  // NUL
  return text;
}

std::optional<std::string> bytes_of_base64(std::string_view text) {
  std::string bytes(text.size() / 4 * 3, '\0');
  std::size_t size = 0;
  const int failed =
      sodium_base642bin(reinterpret_cast<unsigned char*>(bytes.data()), bytes.size(), text.data(),
                        text.size(), nullptr, &size, nullptr, sodium_base64_VARIANT_ORIGINAL);
  if (failed != 0) return {};
  bytes.resize(size);
  return bytes;
}

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
    throw DeviceError("cannot get random numbers from the system (getentropy)");
  return bytes;
}

}  // namespace hybrid_trainer
