#pragma once

#include <algorithm>
#include <numeric>
#include <vector>

#include "hybrid_trainer/core/memory_block.h"

namespace hybrid_trainer {

/// What each live block of a pool is. Slots are used again: once there were as many blocks as there
/// ever are, it takes no memory.
class BlockLedger {
 public:
  std::size_t add(const MemoryBlock& block) {
    if (free_.empty()) {
      free_.push_back(slots_.size());
      slots_.emplace_back();
      free_.reserve(slots_.capacity());
    }
    const std::size_t slot = free_.back();
    free_.pop_back();
    slots_[slot] = block;
    return slot;
  }
  void remove(std::size_t slot) noexcept {
    slots_[slot].bytes = 0;
    free_.push_back(slot);
  }
  MemoryBlock& operator[](std::size_t slot) { return slots_[slot]; }
  std::size_t live() const { return slots_.size() - free_.size(); }

  template <class Visit>
  void visit(const Visit& visit) const {
    for (std::size_t slot = 0; slot < slots_.size(); ++slot)
      if (slots_[slot].bytes > 0) visit(slot, slots_[slot]);
  }
  /// At most `count`, the largest first.
  std::vector<MemoryBlock> largest(std::size_t count) const {
    std::vector<MemoryBlock> blocks;
    visit([&](std::size_t, const MemoryBlock& block) { blocks.push_back(block); });
    const auto end = blocks.begin() + static_cast<std::ptrdiff_t>(std::min(count, blocks.size()));
    std::partial_sort(blocks.begin(), end, blocks.end(),
                      [](const auto& a, const auto& b) { return a.bytes > b.bytes; });
    blocks.erase(end, blocks.end());
    return blocks;
  }

 private:
  std::vector<MemoryBlock> slots_;  // of 0 bytes where there is no block
  std::vector<std::size_t> free_;
};

}  // namespace hybrid_trainer
