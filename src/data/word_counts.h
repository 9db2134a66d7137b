#pragma once

#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

namespace hybrid_trainer {

/// How often each word occurs: an open-addressed hash table over the words' concatenated text.
class WordCounts {
 public:
  static std::uint32_t hash_of(std::string_view word);
  void add(std::string_view word, std::uint32_t hash, std::int64_t count);
  void add(const WordCounts& other);
  void clear();

  std::int64_t words() const { return static_cast<std::int64_t>(entries_.size()); }
  /// What all words weigh: their text, and a constant per word.
  std::size_t weight() const { return text_.size() + kWordWeight * entries_.size(); }
  /// Drops the rarest words, of equally rare ones those with the highest hashes, until weight() <=
  /// `limit`; the choice depends on words and counts alone. Returns how many.
  std::int64_t forget_rarest(std::size_t limit);

  /// Calls f(word, count) for every word.
  template <class F>
  void for_each(const F& f) const {
    for (const Entry& entry : entries_) f(text_of(entry), entry.count);
  }

 private:
  static constexpr std::size_t kWordWeight = 8;
  struct Entry {
    std::int64_t count;
    std::size_t begin;  // in text_
    std::uint32_t size;
    std::uint32_t hash;
  };
  std::string_view text_of(const Entry& entry) const {
    return std::string_view(text_).substr(entry.begin, entry.size);
  }
  bool comes_first(const Entry& a, const Entry& b) const;
  std::size_t most_frequent(std::size_t limit);
  void grow();

  std::string text_;
  std::vector<Entry> entries_;
  std::vector<std::uint32_t> slots_;  // 0: free, else 1 + the index into entries_
};

}  // namespace hybrid_trainer
