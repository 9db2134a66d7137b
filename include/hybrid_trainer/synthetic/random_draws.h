#pragma once

#include <array>
#include <cstdint>
#include <span>

#include "hybrid_trainer/core/random.h"

namespace hybrid_trainer {

/// The numbers of one key, one after the other.
class RandomDraws {
 public:
  explicit RandomDraws(const RandomKey& key) : key_(key) {}
  std::uint32_t word() {
    if (used_ == 4) words_ = philox(key_, block_++), used_ = 0;
    return words_[static_cast<std::size_t>(used_++)];
  }
  /// Uniform in [0, 1).
  float unit() { return to_unit_float(word()); }
  /// Uniform in [from, to).
  float between(float from, float to) { return from + (to - from) * unit(); }
  /// Uniform in [0, count), for small counts.
  std::int64_t below(std::int64_t count) {
    return static_cast<std::int64_t>((std::uint64_t{word()} * static_cast<std::uint64_t>(count)) >>
                                     32);
  }
  /// Standard normal.
  double normal();

 private:
  RandomKey key_;
  std::uint64_t block_ = 0;
  std::array<std::uint32_t, 4> words_{};
  int used_ = 4;
};

/// Adds uniform noise in [−most, most), of 16 bits, to each value.
void add_uniform_noise(std::span<float> values, float most, const RandomKey& key);

}  // namespace hybrid_trainer
