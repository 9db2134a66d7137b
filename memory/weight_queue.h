#pragma once

#include <exception>
#include <map>
#include <utility>
#include <vector>

#include "memory/background_copy.h"

namespace hybrid_trainer {

/// Copies in memory of weights that lie in a file. While one is used, a thread of its own reads the
/// one that followed it last time, and another writes the one that was changed before. What is live
/// depends on the order of use alone, never on the disk's pace.
class WeightQueue {
 public:
  /// A copy of what lies at `home`, to be held until `release`. Throws OutOfMemory, IoError, also for
  /// what was written before.
  Tensor acquire(const Tensor& home, const Stream& stream);
  /// Writes it back where it was changed.
  void release(const Tensor& home, const Tensor& here, bool changed) noexcept;
  /// What was changed is at its home, which may be read and written by others until the next
  /// acquire. Throws IoError.
  void settle();
  /// `home` is no place of a weight any more.
  void forget(const Tensor& home) noexcept;

 private:
  using Place = const void*;
  void read_ahead(const Stream& stream);
  void wait_for_write();

  std::map<std::pair<Place, Place>, Tensor> followed_;  // the last two places, and what came then
  std::pair<Place, Place> last_{};
  std::vector<Place> held_;
  BackgroundCopy ahead_, back_;
  std::exception_ptr failure_;  // of a write, kept for whoever comes next
};

}  // namespace hybrid_trainer
