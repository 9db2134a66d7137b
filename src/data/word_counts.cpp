#include "src/data/word_counts.h"

#include <algorithm>
#include <functional>
#include <utility>

#include "hybrid_trainer/core/narrow.h"

namespace hybrid_trainer {

std::uint32_t WordCounts::hash_of(std::string_view word) {
  const std::size_t hash = std::hash<std::string_view>()(word);
  return narrow<std::uint32_t>((hash ^ hash >> 32) & 0xFFFFFFFF);
}

void WordCounts::add(std::string_view word, std::uint32_t hash, std::int64_t count) {
  if (2 * entries_.size() >= slots_.size()) grow();
  const std::size_t mask = slots_.size() - 1;
  std::size_t i = hash & mask;
  for (; slots_[i] != 0; i = (i + 1) & mask) {
    Entry& entry = entries_[slots_[i] - 1];
    if (entry.hash != hash || text_of(entry) != word) continue;
    entry.count += count;
    return;
  }
  entries_.push_back(
      {count, text_.size(), narrow<std::uint32_t>(word.size(), "the length of a word"), hash});
  text_ += word;
  slots_[i] = narrow<std::uint32_t>(entries_.size(), "the number of words");
}

void WordCounts::add(const WordCounts& other) {
  for (const Entry& entry : other.entries_) add(other.text_of(entry), entry.hash, entry.count);
}

void WordCounts::clear() {
  text_.clear();
  entries_.clear();
  std::ranges::fill(slots_, 0u);
}

void WordCounts::grow() {
  constexpr std::size_t kFewestSlots = 64;
  slots_.assign(std::max(kFewestSlots, 2 * slots_.size()), 0);
  const std::size_t mask = slots_.size() - 1;
  for (std::size_t place = 0; place < entries_.size(); ++place) {
    std::size_t i = entries_[place].hash & mask;
    while (slots_[i] != 0) i = (i + 1) & mask;
    slots_[i] = narrow<std::uint32_t>(place + 1);
  }
}

bool WordCounts::comes_first(const Entry& a, const Entry& b) const {
  if (a.count != b.count) return a.count > b.count;
  if (a.hash != b.hash) return a.hash < b.hash;
  return text_of(a) < text_of(b);
}

/// Moves the most frequent words to the front of entries_, as many as fit into `limit`; returns
/// their number. Bisects with nth_element, in linear time.
std::size_t WordCounts::most_frequent(std::size_t limit) {
  std::size_t kept = 0, end = entries_.size();
  const auto at = [&](std::size_t place) {
    return entries_.begin() + static_cast<std::ptrdiff_t>(place);
  };
  while (kept < end) {
    const std::size_t middle = kept + (end - kept - 1) / 2;
    std::nth_element(at(kept), at(middle), at(end),
                     [&](const Entry& a, const Entry& b) { return comes_first(a, b); });
    std::size_t weight = 0;
    for (std::size_t i = kept; i <= middle; ++i) weight += entries_[i].size + kWordWeight;
    if (weight <= limit) {
      limit -= weight;
      kept = middle + 1;
    } else {
      end = middle;
    }
  }
  return kept;
}

std::int64_t WordCounts::forget_rarest(std::size_t limit) {
  if (weight() <= limit) return 0;
  const std::int64_t before = words();
  const std::size_t kept = most_frequent(limit);
  WordCounts rest;
  for (std::size_t i = 0; i < kept; ++i) {
    rest.add(text_of(entries_[i]), entries_[i].hash, entries_[i].count);
  }
  *this = std::move(rest);
  return before - words();
}

}  // namespace hybrid_trainer
