#include "src/files/checksum.h"

#define XXH_INLINE_ALL
#include <xxhash.h>

#include <algorithm>

#include "hybrid_trainer/files/input_file.h"
#include "src/core/sha256.h"

namespace hybrid_trainer {

static std::string hexadecimal(const XXH128_hash_t& hash) {
  XXH128_canonical_t canonical;
  XXH128_canonicalFromHash(&canonical, hash);
  return hex_of(canonical.digest);
}

struct Checksum::Hash {
  XXH3_state_t state;
};

Checksum::Checksum() : hash_(std::make_unique<Hash>()) { XXH3_128bits_reset(&hash_->state); }
Checksum::Checksum(Checksum&&) noexcept = default;
Checksum& Checksum::operator=(Checksum&&) noexcept = default;
Checksum::~Checksum() = default;

void Checksum::add(const void* data, std::size_t bytes) {
  if (bytes > 0) XXH3_128bits_update(&hash_->state, data, bytes);
}

std::string Checksum::text() const { return hexadecimal(XXH3_128bits_digest(&hash_->state)); }

std::string checksum_of(std::string_view bytes) {
  return hexadecimal(XXH3_128bits(bytes.data(), bytes.size()));
}

std::string checksum_of_file(const std::filesystem::path& path) {
  const InputFile file(path);
  Checksum checksum;
  std::string part;
  for (std::size_t at = 0; at < file.bytes(); at += part.size()) {
    part.resize(std::min(kMaxBytesAtOnce, file.bytes() - at));
    file.read_at(part.data(), part.size(), at);
    checksum.add(part.data(), part.size());
  }
  return checksum.text();
}

}  // namespace hybrid_trainer
