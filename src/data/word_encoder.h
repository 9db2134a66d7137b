#pragma once

#include <cstdint>
#include <string_view>
#include <vector>

#include "bpe_model.h"

namespace hybrid_trainer {

/// The merges by pair, in an open-addressed hash table.
class MergeTable {
 public:
  struct Rule {
    std::int32_t rank = kNone;
    std::int32_t joined = 0;
  };
  static constexpr std::int32_t kNone = INT32_MAX;

  explicit MergeTable(const std::vector<BpeMerge>& merges);
  /// Rank kNone if the pair is never joined.
  Rule find(std::int32_t left, std::int32_t right) const {
    const std::uint64_t key = key_of(left, right);
    for (std::size_t i = slot_of(key);; i = (i + 1) & mask_) {
      if (slots_[i].key == key) return slots_[i].rule;
      if (slots_[i].key == kFree) return {};
    }
  }

 private:
  static constexpr std::uint64_t kFree = ~std::uint64_t{0};
  struct Slot {
    std::uint64_t key = kFree;
    Rule rule;
  };
  static std::uint64_t key_of(std::int32_t left, std::int32_t right) {
    return std::uint64_t{static_cast<std::uint32_t>(left)} << 32 |
           static_cast<std::uint32_t>(right);
  }
  std::size_t slot_of(std::uint64_t key) const {
    return static_cast<std::size_t>((key * 0x9E3779B97F4A7C15u) >> 32) & mask_;
  }
  std::size_t mask_;
  std::vector<Slot> slots_;
};

/// Splits one word into tokens by repeatedly joining the pair of lowest rank, leftmost first. A
/// word of n bytes takes O(n log n) at worst. Earlier words are looked up in a cache of fixed size.
/// Not thread-safe.
class WordEncoder {
 public:
  WordEncoder(const MergeTable& merges, const std::array<std::int32_t, 256>& byte_ids);
  void append(std::string_view word, std::vector<std::int32_t>& ids);

 private:
  static constexpr std::size_t kCacheBits = 15;
  static constexpr std::size_t kCachedBytes = 22;
  static constexpr std::size_t kCachedIds = 10;
  struct alignas(64) CachedWord {
    std::uint8_t bytes = 0;  // 0: free
    std::uint8_t count = 0;
    char text[kCachedBytes];
    std::int32_t ids[kCachedIds];
  };
  struct Symbol {
    std::int32_t id;
    std::int32_t previous;
    std::int32_t next;
  };
  struct Candidate {
    std::int32_t rank;
    std::int32_t position;
    std::int32_t left, right, joined;
  };
  static bool comes_later(const Candidate& a, const Candidate& b);
  void append_merged(std::string_view word, std::vector<std::int32_t>& ids);
  void append_short(std::string_view word, std::vector<std::int32_t>& ids);
  void append_long(std::string_view word, std::vector<std::int32_t>& ids);
  void push_candidate(std::int32_t position);

  const MergeTable* merges_;
  std::array<std::int32_t, 256> byte_ids_;
  std::vector<CachedWord> cache_;
  std::vector<Symbol> symbols_;
  std::vector<Candidate> heap_;
};

}  // namespace hybrid_trainer
