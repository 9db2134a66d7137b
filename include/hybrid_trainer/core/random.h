#pragma once

#include <array>
#include <cstdint>

namespace hybrid_trainer {

/// A stateless random sequence: element i depends only on the key and i, on any device.
struct RandomKey {
  std::uint64_t seed = 0;
  std::uint64_t step = 0;
  std::uint64_t tensor = 0;
};

/// Returns four random words for counter `block`: Philox 4x32 with 10 rounds (Salmon et al. 2011).
constexpr std::array<std::uint32_t, 4> philox(const RandomKey& key, std::uint64_t block) {
  std::uint32_t c0 = static_cast<std::uint32_t>(block),
                c1 = static_cast<std::uint32_t>(block >> 32);
  std::uint32_t c2 = static_cast<std::uint32_t>(key.step),
                c3 = static_cast<std::uint32_t>(key.tensor);
  std::uint32_t k0 = static_cast<std::uint32_t>(key.seed);
  std::uint32_t k1 = static_cast<std::uint32_t>(key.seed >> 32) ^
                     static_cast<std::uint32_t>(key.step >> 32) ^
                     static_cast<std::uint32_t>(key.tensor >> 32) * 0x9E3779B9u;
  for (int round = 0; round < 10; ++round) {
    const std::uint64_t p0 = std::uint64_t{0xD2511F53u} * c0;
    const std::uint64_t p1 = std::uint64_t{0xCD9E8D57u} * c2;
    const std::uint32_t n0 = static_cast<std::uint32_t>(p1 >> 32) ^ c1 ^ k0;
    const std::uint32_t n2 = static_cast<std::uint32_t>(p0 >> 32) ^ c3 ^ k1;
    c1 = static_cast<std::uint32_t>(p1);
    c3 = static_cast<std::uint32_t>(p0);
    c0 = n0;
    c2 = n2;
    k0 += 0x9E3779B9u;
    k1 += 0xBB67AE85u;
  }
  return {c0, c1, c2, c3};
}

/// Maps the upper 24 bits of a word to [0, 1).
constexpr float to_unit_float(std::uint32_t word) {
  return static_cast<float>(word >> 8) * 0x1p-24f;
}

/// Returns word i of the key's sequence.
constexpr std::uint32_t random_word(const RandomKey& key, std::uint64_t i) {
  return philox(key, i / 4)[i % 4];
}

/// Returns a uniform integer in [0, bound), with a relative bias below bound·2^-64.
inline std::uint64_t random_below(const RandomKey& key, std::uint64_t i, std::uint64_t bound) {
  const auto words = philox(key, i);
  const std::uint64_t wide = (std::uint64_t{words[0]} << 32) | words[1];
  __extension__ using Wide = unsigned __int128;
  return static_cast<std::uint64_t>((static_cast<Wide>(wide) * bound) >> 64);
}

/// Returns element i of the key's standard normal sequence (Box–Muller).
float random_normal(const RandomKey& key, std::uint64_t i);

/// Returns element i's position in a random permutation of [0, count): a Feistel network, repeated
/// until the result is in range, less than four times on average. Source: Black & Rogaway 2002,
/// "Ciphers with arbitrary finite domains".
std::uint64_t random_permuted(const RandomKey& key, std::uint64_t i, std::uint64_t count);

}  // namespace hybrid_trainer
