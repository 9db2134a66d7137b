#include "word_encoder.h"

#include <algorithm>
#include <bit>
#include <cstring>

namespace hybrid_trainer {

namespace {

constexpr std::size_t kShortWord = 32;  // from here on a heap is faster than scanning all pairs
constexpr std::int32_t kGone = -1;      // id of a symbol merged into its left neighbour

std::uint64_t hash_of(std::string_view word) {
  std::uint64_t hash = word.size() * 0x9E3779B97F4A7C15u;
  for (std::size_t i = 0; i < word.size(); i += sizeof(std::uint64_t)) {
    std::uint64_t part = 0;
    std::memcpy(&part, word.data() + i, std::min(sizeof(part), word.size() - i));
    hash = (std::rotl(hash, 23) ^ part) * 0x9FB21C651E98DF25u;
    hash ^= hash >> 32;
  }
  return hash;
}

}  // namespace

bool WordEncoder::comes_later(const Candidate& a, const Candidate& b) {
  return a.rank != b.rank ? a.rank > b.rank : a.position > b.position;
}

MergeTable::MergeTable(const std::vector<BpeMerge>& merges)
    : mask_(std::bit_ceil(2 * merges.size() + 2) - 1), slots_(mask_ + 1) {
  std::int32_t rank = 0;
  for (const BpeMerge& merge : merges) {
    const std::uint64_t key = key_of(merge.left, merge.right);
    std::size_t i = slot_of(key);
    while (slots_[i].key != kFree && slots_[i].key != key) i = (i + 1) & mask_;
    if (slots_[i].key == kFree) slots_[i] = {key, {rank, merge.joined}};
    ++rank;
  }
}

WordEncoder::WordEncoder(const MergeTable& merges, const std::array<std::int32_t, 256>& byte_ids)
    : merges_(&merges), byte_ids_(byte_ids), cache_(std::size_t{1} << kCacheBits) {}

void WordEncoder::append(std::string_view word, std::vector<std::int32_t>& ids) {
  if (word.size() > kCachedBytes) return append_merged(word, ids);
  CachedWord& cached = cache_[hash_of(word) >> (64 - kCacheBits)];
  if (cached.bytes == word.size() && std::memcmp(cached.text, word.data(), word.size()) == 0) {
    ids.insert(ids.end(), cached.ids, cached.ids + cached.count);
    return;
  }
  const std::size_t before = ids.size();
  append_merged(word, ids);
  const std::size_t count = ids.size() - before;
  if (count > kCachedIds) return;
  cached.bytes = static_cast<std::uint8_t>(word.size());
  cached.count = static_cast<std::uint8_t>(count);
  std::memcpy(cached.text, word.data(), word.size());
  std::copy_n(ids.end() - static_cast<std::ptrdiff_t>(count), count, cached.ids);
}

void WordEncoder::append_merged(std::string_view word, std::vector<std::int32_t>& ids) {
  if (word.size() <= kShortWord) return append_short(word, ids);
  append_long(word, ids);
}

void WordEncoder::append_short(std::string_view word, std::vector<std::int32_t>& ids) {
  std::array<std::int32_t, kShortWord> symbols;
  std::array<MergeTable::Rule, kShortWord> rules;  // of symbols i and i + 1
  std::size_t count = word.size();
  for (std::size_t i = 0; i < count; ++i)
    symbols[i] = byte_ids_[static_cast<unsigned char>(word[i])];
  for (std::size_t i = 0; i + 1 < count; ++i) rules[i] = merges_->find(symbols[i], symbols[i + 1]);
  while (count > 1) {
    std::size_t best = 0;
    for (std::size_t i = 1; i + 1 < count; ++i) {
      if (rules[i].rank < rules[best].rank) best = i;
    }
    if (rules[best].rank == MergeTable::kNone) break;
    symbols[best] = rules[best].joined;
    --count;
    for (std::size_t i = best + 1; i < count; ++i) symbols[i] = symbols[i + 1];
    for (std::size_t i = best; i + 1 < count; ++i) rules[i] = rules[i + 1];
    if (best > 0) rules[best - 1] = merges_->find(symbols[best - 1], symbols[best]);
    if (best + 1 < count) rules[best] = merges_->find(symbols[best], symbols[best + 1]);
  }
  ids.insert(ids.end(), symbols.begin(), symbols.begin() + static_cast<std::ptrdiff_t>(count));
}

void WordEncoder::push_candidate(std::int32_t position) {
  if (position < 0) return;
  const Symbol& symbol = symbols_[static_cast<std::size_t>(position)];
  if (symbol.next < 0) return;
  const std::int32_t right = symbols_[static_cast<std::size_t>(symbol.next)].id;
  const MergeTable::Rule rule = merges_->find(symbol.id, right);
  if (rule.rank == MergeTable::kNone) return;
  heap_.push_back({rule.rank, position, symbol.id, right, rule.joined});
  std::ranges::push_heap(heap_, comes_later);
}

void WordEncoder::append_long(std::string_view word, std::vector<std::int32_t>& ids) {
  const auto count = static_cast<std::int32_t>(word.size());
  symbols_.clear();
  heap_.clear();
  for (std::int32_t i = 0; i < count; ++i) {
    const auto byte = static_cast<unsigned char>(word[static_cast<std::size_t>(i)]);
    symbols_.push_back({byte_ids_[byte], i - 1, i + 1 < count ? i + 1 : -1});
  }
  for (std::int32_t i = 0; i < count; ++i) push_candidate(i);
  while (!heap_.empty()) {
    const Candidate best = heap_.front();
    std::ranges::pop_heap(heap_, comes_later);
    heap_.pop_back();
    Symbol& left = symbols_[static_cast<std::size_t>(best.position)];
    if (left.id != best.left || left.next < 0) continue;
    Symbol& right = symbols_[static_cast<std::size_t>(left.next)];
    if (right.id != best.right) continue;
    left.id = best.joined;
    right.id = kGone;
    left.next = right.next;
    if (left.next >= 0) symbols_[static_cast<std::size_t>(left.next)].previous = best.position;
    push_candidate(left.previous);
    push_candidate(best.position);
  }
  for (std::int32_t i = 0; i >= 0; i = symbols_[static_cast<std::size_t>(i)].next) {
    ids.push_back(symbols_[static_cast<std::size_t>(i)].id);
  }
}

}  // namespace hybrid_trainer
