#include <algorithm>

#include "src/core/block_store.h"

namespace hybrid_trainer {

bool BudgetedSource::over_budget_with(std::size_t bytes) const {
  return budget_bytes_ && taken_bytes_ + bytes > *budget_bytes_;
}

void* BudgetedSource::take(std::size_t bytes) {
  if (over_budget_with(bytes)) return nullptr;
  void* data = source_.take(bytes);
  if (data == nullptr) return nullptr;
  taken_bytes_ += bytes;
  most_taken_bytes_ = std::max(most_taken_bytes_, taken_bytes_);
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
    while (!free_.empty() && is_too_much_with(bytes)) give_back_the_oldest();
    data = source_.take(bytes);
  }
  if (data != nullptr) in_use_bytes_ += bytes;
  most_in_use_bytes_ = std::max(most_in_use_bytes_, in_use_bytes_);
  return data;
}

void BlockCache::release(void* data, std::size_t bytes) {
  in_use_bytes_ -= bytes;
  free_[bytes].push_back({data, releases_++});
}

bool BlockCache::is_too_much_with(std::size_t bytes) const {
  constexpr std::size_t kAlwaysKept = std::size_t{1} << 20;
  const std::size_t most = std::max(most_in_use_bytes_, in_use_bytes_ + bytes);
  return source_.over_budget_with(bytes) ||
         source_.taken_bytes() + bytes > most + std::max(most / 32, kAlwaysKept);
}

void BlockCache::give_back_the_oldest() noexcept {
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

}  // namespace hybrid_trainer
