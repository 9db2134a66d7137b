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
  const auto found = free_.find(bytes);
  if (found != free_.end() && !found->second.empty()) {
    void* data = found->second.back();
    found->second.pop_back();
    return data;
  }
  return source_.take(bytes);
}

void BlockCache::trim() noexcept {
  for (auto& [bytes, blocks] : free_) {
    for (void* block : blocks) source_.give(block, bytes);
  }
  free_.clear();
}

}  // namespace hybrid_trainer
