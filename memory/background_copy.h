#pragma once

#include <future>

#include "hybrid_trainer/core/tensor.h"

namespace hybrid_trainer {

/// One copy at a time between memory and a file, in a thread of its own beside what is computed. Both
/// tensors are held until the owner waits, so that what is live never depends on the disk's pace.
class BackgroundCopy {
 public:
  ~BackgroundCopy();
  BackgroundCopy() = default;
  BackgroundCopy(const BackgroundCopy&) = delete;
  BackgroundCopy& operator=(const BackgroundCopy&) = delete;
  /// Waits for the last one. Both must be in memory that the processor reaches.
  void begin(const Tensor& to, const Tensor& from);
  /// Until it is done, and lets go of its tensors. Throws IoError.
  void wait();
  /// Whether this tensor is what it copies from.
  bool is_from(const Tensor& from) const { return from_ && from_.raw() == from.raw(); }
  bool is_to(const Tensor& to) const { return to_ && to_.raw() == to.raw(); }
  const Tensor& target() const { return to_; }

 private:
  Tensor to_, from_;
  std::future<void> running_;
};

}  // namespace hybrid_trainer
