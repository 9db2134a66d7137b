#pragma once

#include <cstddef>
#include <vector>

namespace hybrid_trainer::emulation {

/// The asynchronous copies of one thread of a block. Nothing is copied before the wait that covers
/// it, so a read without a wait is detected.
class AsyncCopies {
 public:
  /// Writes NaNs to `to` at once, and 16 bytes of `from` (zeros where it is nullptr) at the wait.
  void copy(void* to, const void* from);
  void commit() { ++group_; }
  /// Carries out all but the newest `groups` committed groups.
  void wait(int groups);

 private:
  struct Copy {
    void* to;
    const void* from;
    int group;
  };
  std::vector<Copy> pending_;
  int group_ = 0;  // of the next copies
};

/// Those of the current thread.
AsyncCopies& async_copies();

}  // namespace hybrid_trainer::emulation
