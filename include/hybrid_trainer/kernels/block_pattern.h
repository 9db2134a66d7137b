#pragma once

#include <cstdint>
#include <initializer_list>
#include <limits>

namespace hybrid_trainer::kernels {

/// Which blocks of keys a block of queries sees in causal attention. Blocks count a row's positions,
/// also where it holds several documents. Block i of queries sees blocks i − local + 1 to i, the first
/// `global` ones, and `random` others: the blocks between are cut into as many equal parts, and of
/// each part one block is drawn, a function of key, head, i and part alone. Source: Zaheer et al. 2020,
/// "Big Bird", which draws from all of them together.
struct BlockPattern {
  std::int32_t block = 0;  // positions of a block; 0: no pattern, a query sees all keys
  std::int32_t local = 1, global = 0, random = 0;
  std::uint32_t key = 0;  // of the random numbers: each layer has another one

  static constexpr std::int32_t kNone = std::numeric_limits<std::int32_t>::max();

  constexpr bool is_on() const { return block > 0; }
  constexpr bool sees(std::int32_t head, std::int32_t i, std::int32_t j) const {
    return next_seen(head, i, j) == j;
  }
  /// The first block from j on that block i sees; kNone where there is none.
  constexpr std::int32_t next_seen(std::int32_t head, std::int32_t i, std::int32_t j) const {
    if (j > i) return kNone;
    const std::int32_t first_local = i - local + 1, others = first_local - global;
    if (j < global || j >= first_local || random >= others) return j;
    const std::int32_t at = j - global;
    for (std::int32_t part = at * random / others; part < random; ++part) {  // twice at most
      const std::int32_t drawn = drawn_of(head, i, part, others);
      if (drawn >= at) return drawn + global;
    }
    return first_local;
  }
  /// How many blocks block i sees.
  constexpr std::int32_t seen_by(std::int32_t i) const {
    const std::int32_t first_local = i < local ? 0 : i - local + 1;
    const std::int32_t others = first_local < global ? 0 : first_local - global;
    return i + 1 - (others > random ? others - random : 0);
  }

 private:
  /// Which one of `others` blocks between the global and the local ones is drawn of a part of them.
  constexpr std::int32_t drawn_of(std::int32_t head, std::int32_t i, std::int32_t part,
                                  std::int32_t others) const {
    const std::int32_t begin = (part * others + random - 1) / random,
                       end = ((part + 1) * others + random - 1) / random;
    const auto choices = static_cast<std::uint64_t>(end - begin);
    return begin + static_cast<std::int32_t>(random_word(head, i, part) * choices >> 32);
  }
  /// Fewer registers than philox takes: the kernels ask between tiles. Source: Wellons 2018, "Prospecting
  /// for hash functions" (lowbias32).
  constexpr std::uint32_t random_word(std::int32_t head, std::int32_t i, std::int32_t part) const {
    std::uint32_t word = key;
    for (const std::int32_t next : {head, i, part}) {
      word ^= static_cast<std::uint32_t>(next) * 0x9E3779B9u;
      word = (word ^ word >> 16) * 0x21F0AAADu;
      word = (word ^ word >> 15) * 0x735A2D97u;
      word ^= word >> 15;
    }
    return word;
  }
};

}  // namespace hybrid_trainer::kernels
