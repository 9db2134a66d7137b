#include "src/data/word_encoder.h"

#include <algorithm>
#include <array>
#include <bit>
#include <cstring>

#include "hybrid_trainer/core/narrow.h"
#include "hybrid_trainer/files/utf8.h"

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

WordEncoder::WordEncoder(const WordModel& model)
    : model_(&model), merges_(&model.merges()), cache_(std::size_t{1} << kCacheBits) {}

void WordEncoder::append(std::string_view word, std::vector<std::int32_t>& ids) {
  if (const auto id = model_->whole_word(word)) return ids.push_back(*id);
  if (model_->by_bytes()) return append_cached(word, ids);
  std::size_t begin = 0;
  std::string_view before;
  for (std::size_t i = 0; i < word.size();) {
    const auto character = word.substr(i, std::max<std::size_t>(decode_utf8(word, i).bytes, 1));
    if (i > 0 && model_->may_divide(before, character)) {
      append_cached(word.substr(begin, i - begin), ids);
      begin = i;
    }
    before = character;
    i += character.size();
  }
  if (begin < word.size()) append_cached(word.substr(begin), ids);
}

void WordEncoder::append_cached(std::string_view word, std::vector<std::int32_t>& ids) {
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
  cached.bytes = narrow<std::uint8_t>(word.size());
  cached.count = narrow<std::uint8_t>(count);
  std::memcpy(cached.text, word.data(), word.size());
  std::copy_n(ids.end() - static_cast<std::ptrdiff_t>(count), count, cached.ids);
}

void WordEncoder::append_merged(std::string_view part, std::vector<std::int32_t>& ids) {
  initial_.clear();
  model_->append_symbols(part, initial_);
  if (initial_.size() <= kShortWord) return append_short(ids);
  append_long(ids);
}

void WordEncoder::append_short(std::vector<std::int32_t>& ids) {
  std::array<std::int32_t, kShortWord> symbols;
  std::array<MergeTable::Rule, kShortWord> rules;  // of symbols i and i + 1
  std::size_t count = initial_.size();
  std::ranges::copy(initial_, symbols.begin());
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

void WordEncoder::append_long(std::vector<std::int32_t>& ids) {
  const auto count = narrow<std::int32_t>(initial_.size(), "the length of a word");
  symbols_.clear();
  heap_.clear();
  for (std::int32_t i = 0; i < count; ++i) {
    symbols_.push_back({initial_[static_cast<std::size_t>(i)], i - 1, i + 1 < count ? i + 1 : -1});
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
