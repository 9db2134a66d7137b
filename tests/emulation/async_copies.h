#pragma once

#include <cstddef>
#include <vector>

namespace hybrid_trainer::emulation {

/// Asynchronous copies of one thread of a block. Data is copied only at the wait that covers it, so
/// a read without a wait is detected.
class AsyncCopies {
 public:
  /// Writes NaNs to `to` immediately, and 16 bytes of `from` (zeros if nullptr) at the wait.
  void copy(void* to, const void* from);
  void commit() { ++group_; }
  /// Performs all but the newest `groups` committed groups.
  void wait(int groups);

 private:
  struct Copy {
    void* to;
    const void* from;
    int group;
  };
  std::vector<Copy> pending_;
  int group_ = 0;  // group of the next copies
};

/// The asynchronous copies of the current thread.
AsyncCopies& async_copies();

}  // namespace hybrid_trainer::emulation
