#pragma once

#include <algorithm>

#include "hybrid_trainer/core/batch.h"
#include "hybrid_trainer/core/error.h"
#include "hybrid_trainer/core/memory_pool.h"

namespace hybrid_trainer {

/// Splits batches such that a pass over a part fits in memory.
class BatchParts {
 public:
  explicit BatchParts(const Stream& stream) : stream_(stream) {}

  /// Calls pass(first, examples) for consecutive parts of the batch; `first` is the index of the
  /// part's first example. If `pass` throws OutOfMemory, repeats it with half as many examples, and
  /// uses this number for later batches, too. Throws OutOfMemory if a single example does not fit.
  template <class PassOver>
  void run(const Batch& batch, const PassOver& pass) {
    for (std::int64_t first = 0; first < batch.size();) {
      const std::int64_t size = std::min(batch.size() - first, at_once_);
      try {
        pass(first, batch.examples(first, first + size));
        first += size;
      } catch (const OutOfMemory&) {
        if (size == 1) throw;
        at_once_ = size / 2;
        stream_.synchronize();
        stream_.pool()->trim();
      }
    }
  }

 private:
  const Stream& stream_;
  std::int64_t at_once_ = std::numeric_limits<std::int64_t>::max();
};

}  // namespace hybrid_trainer
