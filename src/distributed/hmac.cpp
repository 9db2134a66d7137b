#include "src/distributed/hmac.h"

#include <sys/random.h>

#include "hybrid_trainer/core/error.h"

namespace hybrid_trainer {

Digest hmac_sha256(std::string_view key, std::string_view message) {
  const auto text_of = [](const Digest& digest) {
    return std::string(digest.begin(), digest.end());
  };
  std::string block = key.size() > kSha256Block ? text_of(sha256(key)) : std::string(key);
  block.resize(kSha256Block);
  std::string inner = block, outer = block;
  for (char& c : inner) c = static_cast<char>(c ^ 0x36);
  for (char& c : outer) c = static_cast<char>(c ^ 0x5c);
  return sha256(outer + text_of(sha256(inner.append(message))));
}

bool same_digest(const Digest& left, const Digest& right) {
  unsigned difference = 0;
  for (std::size_t i = 0; i < left.size(); ++i)
    difference |= static_cast<unsigned>(left[i] ^ right[i]);
  return difference == 0;
}

std::string random_bytes(std::size_t count) {
  std::string bytes(count, '\0');
  if (::getentropy(bytes.data(), count) != 0)
    throw DeviceError("the system has no random numbers (getentropy)");
  return bytes;
}

}  // namespace hybrid_trainer
