#pragma once

#include <bit>
#include <cstdint>
#include <queue>
#include <string_view>
#include <unordered_map>
#include <utility>
#include <vector>

#include "src/data/bpe_model.h"

namespace hybrid_trainer {

/// How often each pair of neighbouring tokens occurs within the words of a corpus, kept up to date
/// while pairs are joined.
class PairCounts {
 public:
  explicit PairCounts(const std::array<std::int32_t, 256>& byte_ids) : byte_ids_(byte_ids) {}
  /// Adds a word that occurs `count` times; only before the first join.
  void add_word(std::string_view word, std::int64_t count);
  struct Pair {
    std::int64_t count = 0;
    std::int32_t left = 0;
    std::int32_t right = 0;
  };
  /// The most frequent pair, on a tie that of the smallest ids; never returned again. Count 0 if no
  /// pair is left.
  Pair take_most_frequent();
  /// Replaces every occurrence of the pair by `joined`, a new id, left to right within a word.
  void join(const Pair& pair, std::int32_t joined);

 private:
  struct Word {
    std::size_t begin;  // in symbols_
    std::int32_t size;
    std::int64_t count;
  };
  struct Entry {
    std::int64_t count = 0;
    std::vector<std::int32_t> words;  // that have, or once had, the pair
  };
  struct LessFrequent {
    bool operator()(const Pair& a, const Pair& b) const {
      if (a.count != b.count) return a.count < b.count;
      return std::pair(a.left, a.right) > std::pair(b.left, b.right);
    }
  };
  static std::uint64_t key_of(std::int32_t left, std::int32_t right) {
    return std::uint64_t{std::bit_cast<std::uint32_t>(left)} << 32 |
           std::bit_cast<std::uint32_t>(right);
  }
  void add_pair(std::int32_t left, std::int32_t right, std::int64_t count, std::int32_t word);
  void push_new_pairs();
  void join_in_word(std::int32_t index, const Pair& pair, std::int32_t joined);

  std::array<std::int32_t, 256> byte_ids_;
  std::vector<std::int32_t> symbols_;
  std::vector<Word> words_;
  std::unordered_map<std::uint64_t, Entry> pairs_;
  std::vector<std::uint64_t> new_pairs_;  // not yet in the queue
  // Counts here may be too high: a pair's count only falls after it was pushed.
  std::priority_queue<Pair, std::vector<Pair>, LessFrequent> queue_;
};

}  // namespace hybrid_trainer
