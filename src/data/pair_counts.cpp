#include "src/data/pair_counts.h"

#include "hybrid_trainer/core/narrow.h"

namespace hybrid_trainer {

void PairCounts::add_word(std::string_view word, std::int64_t count) {
  const auto index = narrow<std::int32_t>(words_.size(), "the number of words");
  words_.push_back(
      {symbols_.size(), narrow<std::int32_t>(word.size(), "the length of a word"), count});
  for (const char byte : word) symbols_.push_back(byte_ids_[static_cast<unsigned char>(byte)]);
  const std::int32_t* symbol = symbols_.data() + words_.back().begin;
  for (std::size_t i = 0; i + 1 < word.size(); ++i)
    add_pair(symbol[i], symbol[i + 1], count, index);
}

void PairCounts::add_pair(std::int32_t left, std::int32_t right, std::int64_t count,
                          std::int32_t word) {
  const auto [found, is_new] = pairs_.try_emplace(key_of(left, right));
  if (is_new) new_pairs_.push_back(found->first);
  Entry& entry = found->second;
  entry.count += count;
  if (entry.words.empty() || entry.words.back() != word) entry.words.push_back(word);
}

void PairCounts::push_new_pairs() {
  for (const std::uint64_t key : new_pairs_) {
    queue_.push({pairs_.at(key).count, narrow<std::int32_t>(key >> 32),
                 narrow<std::int32_t>(key & 0xFFFFFFFFu)});
  }
  new_pairs_.clear();
}

PairCounts::Pair PairCounts::take_most_frequent() {
  push_new_pairs();
  while (!queue_.empty()) {
    Pair best = queue_.top();
    queue_.pop();
    const std::int64_t count = pairs_.at(key_of(best.left, best.right)).count;
    if (count == best.count) return best;
    best.count = count;
    queue_.push(best);
  }
  return {};
}

void PairCounts::join(const Pair& pair, std::int32_t joined) {
  const auto words = std::move(pairs_.at(key_of(pair.left, pair.right)).words);
  for (const std::int32_t index : words) join_in_word(index, pair, joined);
  pairs_.erase(key_of(pair.left, pair.right));
}

void PairCounts::join_in_word(std::int32_t index, const Pair& pair, std::int32_t joined) {
  Word& word = words_[static_cast<std::size_t>(index)];
  std::int32_t* symbol = symbols_.data() + word.begin;
  const auto lower = [&](std::int32_t left, std::int32_t right) {
    const auto found = pairs_.find(key_of(left, right));
    if (found != pairs_.end()) found->second.count -= word.count;
  };
  std::int32_t out = 0;
  for (std::int32_t i = 0; i < word.size; ++i, ++out) {
    const bool matches = i + 1 < word.size && symbol[i] == pair.left && symbol[i + 1] == pair.right;
    if (matches) {
      // The pairs on both sides are replaced by pairs with the joined symbol; the next round may
      // change the right one again.
      if (out > 0) {
        lower(symbol[out - 1], pair.left);
        add_pair(symbol[out - 1], joined, word.count, index);
      }
      if (i + 2 < word.size) {
        lower(pair.right, symbol[i + 2]);
        add_pair(joined, symbol[i + 2], word.count, index);
      }
      ++i;
    }
    symbol[out] = matches ? joined : symbol[i];
  }
  word.size = out;
}

}  // namespace hybrid_trainer
