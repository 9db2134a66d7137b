#pragma once

#include <sys/types.h>
#include <deque>
#include <iterator>
#include <map>

#include "hybrid_trainer/core/memory_pool.h"

namespace hybrid_trainer {

class BudgetedSource {
 public:
  BudgetedSource(MemorySource& source, std::optional<std::size_t> budget_bytes)
      : source_(source), budget_bytes_(budget_bytes) {}
  void* take(std::size_t bytes);  // nullptr if the budget or the source is exhausted
  void give(void* data, std::size_t bytes) noexcept;
  bool would_exceed_budget(std::size_t bytes) const;
  std::size_t taken_bytes() const { return taken_bytes_; }
  std::size_t max_taken_bytes() const { return max_taken_bytes_; }
  std::size_t fresh_bytes() const { return fresh_bytes_; }

 private:
  MemorySource& source_;
  std::optional<std::size_t> budget_bytes_;
  std::size_t taken_bytes_ = 0;
  std::size_t max_taken_bytes_ = 0;
  std::size_t fresh_bytes_ = 0;  // total number of bytes ever allocated
};

/// Allocates blocks from a source and caches freed blocks. Not thread-safe.
class BlockStore {
 public:
  virtual ~BlockStore() = default;
  virtual void* allocate(std::size_t bytes) = 0;  // nullptr if out of memory
  virtual void release(void* data, std::size_t bytes) = 0;
  virtual void trim() noexcept = 0;
  virtual bool reserve(std::size_t) { return true; }
  /// Returns the highest end of a block within a slab so far.
  virtual std::size_t extent() const { return 0; }
};

/// Allocates each block separately and reuses it for requests of exactly its size. The cache is
/// small, so that a process does not exceed its planned peak: the total exceeds the highest use so
/// far by at most 1/32 or 1 MiB, whichever is more. Frees the oldest cached blocks first.
class BlockCache final : public BlockStore {
 public:
  explicit BlockCache(BudgetedSource& source) : source_(source) {}
  void* allocate(std::size_t bytes) override;
  void release(void* data, std::size_t bytes) override;
  void trim() noexcept override;

 private:
  struct Waiting {
    void* data;
    std::uint64_t since;
  };
  bool would_exceed_cache(std::size_t bytes) const;
  void release_oldest() noexcept;

  BudgetedSource& source_;
  std::map<std::size_t, std::deque<Waiting>> free_;  // keyed by size, oldest first
  std::uint64_t releases_ = 0;
  std::size_t in_use_bytes_ = 0, max_in_use_bytes_ = 0;
};

class SingleBlocks final : public BlockStore {
 public:
  explicit SingleBlocks(BudgetedSource& source) : source_(source) {}
  void* allocate(std::size_t bytes) override { return source_.take(bytes); }
  void release(void* data, std::size_t bytes) override { source_.give(data, bytes); }
  void trim() noexcept override {}

 private:
  BudgetedSource& source_;
};

/// Best-fit allocator over large slabs that coalesces freed neighbors.
class Arena final : public BlockStore {
 public:
  explicit Arena(BudgetedSource& source) : source_(source) {}
  void* allocate(std::size_t bytes) override;
  void release(void* data, std::size_t bytes) override;
  void trim() noexcept override;
  bool reserve(std::size_t bytes) override;
  std::size_t extent() const override { return extent_; }

 private:
  using Address = char*;
  struct Piece {
    std::size_t bytes;
    Address slab;  // blocks of different slabs never coalesce, even if adjacent
  };
  using Pieces = std::map<Address, Piece>;
  bool add_slab(std::size_t bytes);
  void add_free(Address begin, Piece piece);
  void remove_free(Pieces::iterator piece);

  BudgetedSource& source_;
  std::size_t extent_ = 0;
  std::map<Address, std::size_t> slabs_;
  Pieces free_;
  std::multimap<std::size_t, Address> free_by_size_;
  std::map<Address, Address> slab_of_used_;
};

/// Allocates file ranges: in the smallest gap that fits, else at the end, to keep the file short.
class FileRanges {
 public:
  off_t take(off_t bytes) {
    auto best = gaps_.end();
    for (auto gap = gaps_.begin(); gap != gaps_.end(); ++gap) {
      const bool is_better = best == gaps_.end() || gap->second < best->second;
      if (gap->second >= bytes && is_better) best = gap;
    }
    if (best == gaps_.end()) {
      end_ += bytes;
      return end_ - bytes;
    }
    const auto [at, room] = *best;
    gaps_.erase(best);
    if (room > bytes) gaps_.emplace(at + bytes, room - bytes);
    return at;
  }

  /// Frees a range. Adjacent gaps are merged; a gap at the end shortens the file.
  void give(off_t at, off_t bytes) {
    auto next = gaps_.lower_bound(at);
    if (next != gaps_.end() && next->first == at + bytes) {
      bytes += next->second;
      next = gaps_.erase(next);
    }
    if (next != gaps_.begin()) {
      const auto before = std::prev(next);
      if (before->first + before->second == at) {
        at = before->first;
        bytes += before->second;
        gaps_.erase(before);
      }
    }
    if (at + bytes == end_) {
      end_ = at;
    } else {
      gaps_.emplace(at, bytes);
    }
  }

  off_t end() const { return end_; }

 private:
  std::map<off_t, off_t> gaps_;  // maps the offset of a gap to its size in bytes
  off_t end_ = 0;
};

}  // namespace hybrid_trainer
