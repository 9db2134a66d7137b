#pragma once

#include <bit>
#include <cstdint>

#include "hybrid_trainer/core/dtype.h"

namespace hybrid_trainer::kernels {

// The same bits on every backend: constexpr functions also compile as device code.

/// 32 random bits for an element of a tensor, by a key for tensor and step: an integer hash without
/// state.
constexpr std::uint32_t random_bits(std::uint32_t key, std::int64_t element) {
  std::uint32_t x = static_cast<std::uint32_t>(element) ^ key;
  x = (x ^ (x >> 16)) * 0x7FEB352Du;
  x = (x ^ (x >> 15)) * 0x846CA68Bu;
  return x ^ (x >> 16);
}

/// x in bf16, rounded up as often as it is far from the number below, so that sums of many small
/// changes keep their mean; infinities and NaNs stay what they are. `random`: 16 bits. Source:
/// Zamirai et al. 2020, "Revisiting BFloat16 training".
constexpr BFloat16 round_stochastically(float x, std::uint32_t random) {
  const auto bits = std::bit_cast<std::uint32_t>(x);
  const std::uint32_t special = x != x ? bits | 0x00400000u : bits;
  const bool is_finite = (bits & 0x7F800000u) != 0x7F800000u;
  const std::uint32_t rounded = is_finite ? bits + (random & 0xFFFFu) : special;
  return BFloat16{static_cast<std::uint16_t>(rounded >> 16)};
}

/// A moment as it is kept: as it is in f32, rounded in bf16.
constexpr void store_moment(float* to, float x, std::uint32_t) { *to = x; }
constexpr void store_moment(BFloat16* to, float x, std::uint32_t random) {
  *to = round_stochastically(x, random);
}

}  // namespace hybrid_trainer::kernels
