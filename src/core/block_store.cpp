#include "src/core/block_store.h"

#include <algorithm>

namespace hybrid_trainer {

bool BudgetedSource::would_exceed_budget(std::size_t bytes) const {
  return budget_bytes_ && taken_bytes_ + bytes > *budget_bytes_;
}

void* BudgetedSource::take(std::size_t bytes) {
  if (would_exceed_budget(bytes)) return nullptr;
  void* data = source_.take(bytes);
  if (data == nullptr) return nullptr;
  taken_bytes_ += bytes;
  max_taken_bytes_ = std::max(max_taken_bytes_, taken_bytes_);
  fresh_bytes_ += bytes;
  return data;
}

void BudgetedSource::give(void* data, std::size_t bytes) noexcept {
  source_.give(data, bytes);
  taken_bytes_ -= bytes;
}

void* BlockCache::allocate(std::size_t bytes) {
  void* data = nullptr;
  if (const auto found = free_.find(bytes); found != free_.end()) {
    data = found->second.back().data;
    found->second.pop_back();
    if (found->second.empty()) free_.erase(found);
  } else {
    while (!free_.empty() && would_exceed_cache(bytes)) release_oldest();
    data = source_.take(bytes);
  }
  if (data != nullptr) in_use_bytes_ += bytes;
  max_in_use_bytes_ = std::max(max_in_use_bytes_, in_use_bytes_);
  return data;
}

void BlockCache::release(void* data, std::size_t bytes) {
  in_use_bytes_ -= bytes;
  free_[bytes].push_back({data, releases_++});
}

bool BlockCache::would_exceed_cache(std::size_t bytes) const {
  constexpr std::size_t kAlwaysKept = std::size_t{1} << 20;
  const std::size_t most = std::max(max_in_use_bytes_, in_use_bytes_ + bytes);
  return source_.would_exceed_budget(bytes) ||
         source_.taken_bytes() + bytes > most + std::max(most / 32, kAlwaysKept);
}

void BlockCache::release_oldest() noexcept {
  const auto oldest = std::ranges::min_element(
      free_, {}, [](const auto& blocks) { return blocks.second.front().since; });
  source_.give(oldest->second.front().data, oldest->first);
  oldest->second.pop_front();
  if (oldest->second.empty()) free_.erase(oldest);
}

void BlockCache::trim() noexcept {
  for (auto& [bytes, blocks] : free_) {
    for (const Waiting& block : blocks) source_.give(block.data, bytes);
  }
  free_.clear();
}

namespace {

constexpr std::size_t kSmallestSlab = std::size_t{64} << 20;
constexpr std::size_t kAlignment = 256;

std::size_t aligned(std::size_t bytes) {
  return (bytes + kAlignment - 1) / kAlignment * kAlignment;
}

}  // namespace

void* Arena::allocate(std::size_t bytes) {
  const std::size_t size = aligned(bytes);
  auto found = free_by_size_.lower_bound(size);
  if (found == free_by_size_.end()) {
    if (!add_slab(std::max(size, kSmallestSlab)) && !add_slab(size)) return nullptr;
    found = free_by_size_.lower_bound(size);
  }
  const auto piece = free_.find(found->second);
  const Address begin = piece->first;
  const Piece whole = piece->second;
  remove_free(piece);
  if (whole.bytes > size) add_free(begin + size, {whole.bytes - size, whole.slab});
  slab_of_used_[begin] = whole.slab;
  extent_ = std::max(extent_, static_cast<std::size_t>(begin + size - whole.slab));
  return begin;
}

void Arena::release(void* data, std::size_t bytes) {
  const auto used = slab_of_used_.find(static_cast<Address>(data));
  Address begin = used->first;
  Piece piece{aligned(bytes), used->second};
  slab_of_used_.erase(used);
  auto next = free_.lower_bound(begin);
  if (next != free_.end() && next->first == begin + piece.bytes &&
      next->second.slab == piece.slab) {
    piece.bytes += next->second.bytes;
    remove_free(next);
  }
  auto before = free_.lower_bound(begin);
  if (before != free_.begin()) {
    --before;
    if (before->first + before->second.bytes == begin && before->second.slab == piece.slab) {
      begin = before->first;
      piece.bytes += before->second.bytes;
      remove_free(before);
    }
  }
  add_free(begin, piece);
}

void Arena::trim() noexcept {
  for (auto slab = slabs_.begin(); slab != slabs_.end();) {
    const auto piece = free_.find(slab->first);
    if (piece == free_.end() || piece->second.bytes != slab->second) {
      ++slab;
      continue;
    }
    remove_free(piece);
    source_.give(slab->first, slab->second);
    slab = slabs_.erase(slab);
  }
}

bool Arena::reserve(std::size_t bytes) {
  const bool there = !free_by_size_.empty() && free_by_size_.rbegin()->first >= aligned(bytes);
  return there || add_slab(aligned(bytes));
}

bool Arena::add_slab(std::size_t bytes) {
  const auto data = static_cast<Address>(source_.take(bytes));
  if (data == nullptr) return false;
  slabs_[data] = bytes;
  add_free(data, {bytes, data});
  return true;
}

void Arena::add_free(Address begin, Piece piece) {
  free_[begin] = piece;
  free_by_size_.emplace(piece.bytes, begin);
}

void Arena::remove_free(Pieces::iterator piece) {
  auto [first, last] = free_by_size_.equal_range(piece->second.bytes);
  first = std::find_if(first, last, [&](const auto& at) { return at.second == piece->first; });
  free_by_size_.erase(first);
  free_.erase(piece);
}

}  // namespace hybrid_trainer
