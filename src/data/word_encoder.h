#pragma once

#include <cstdint>
#include <string_view>
#include <vector>

#include "src/data/word_model.h"

namespace hybrid_trainer {

/// Splits one word into tokens by repeatedly joining the pair of lowest rank, leftmost first. A
/// word of n bytes takes O(n log n) at worst. Where characters are the symbols, a word may be a
/// whole document: it is divided where no merge can go across. Earlier words, or parts so divided,
/// are looked up in a cache of fixed size. Not thread-safe.
class WordEncoder {
 public:
  explicit WordEncoder(const WordModel& model);
  /// Throws DataError where a character needs an unk_token that has no id.
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
  void append_cached(std::string_view part, std::vector<std::int32_t>& ids);
  void append_merged(std::string_view part, std::vector<std::int32_t>& ids);
  void append_short(std::vector<std::int32_t>& ids);
  void append_long(std::vector<std::int32_t>& ids);
  void push_candidate(std::int32_t position);

  const WordModel* model_;
  const MergeTable* merges_;
  std::vector<std::int32_t> initial_;  // symbols of the part that is merged
  std::vector<CachedWord> cache_;
  std::vector<Symbol> symbols_;
  std::vector<Candidate> heap_;
};

}  // namespace hybrid_trainer
