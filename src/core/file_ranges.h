#pragma once

#include <sys/types.h>

#include <iterator>
#include <map>

namespace hybrid_trainer {

/// Which ranges of a file are in use. A range is taken where there is room before its end, the
/// smallest gap that is large enough, so that the file ends where it was fullest.
class FileRanges {
 public:
  /// Where the new range begins.
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

  /// Gaps that touch become one; the last one is none.
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

  /// Where the last range in use ends.
  off_t end() const { return end_; }

 private:
  std::map<off_t, off_t> gaps_;  // bytes, by where they begin
  off_t end_ = 0;
};

}  // namespace hybrid_trainer
