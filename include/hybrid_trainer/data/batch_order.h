#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "hybrid_trainer/data/window_order.h"

namespace hybrid_trainer {

/// Which sequences batch i of a run holds, a pure function of the settings: first the stretches'
/// batches, then those of the settings' own size. The windows of a WindowOrder, which are as long
/// as the longest sequence, are used up one after the other, each token once. A stretch of
/// sequences of T / n tokens takes each batch's windows in n pieces, of which batch after batch
/// holds the next one.
class BatchOrder {
 public:
  /// Throws DataError as WindowOrder; Error where a stretch's sequences are no whole part of the
  /// longest, its batches no multiple of the pieces, or its batch larger than the settings' own.
  BatchOrder(std::int64_t tokens, const BatchSettings& settings, const std::string& name);
  std::int64_t windows_per_epoch() const { return windows_.windows_per_epoch(); }
  BatchShape shape_of(std::int64_t batch) const { return part_of(batch).shape; }
  /// First token of sequence `row` of the batch.
  std::int64_t start_of(std::int64_t batch, std::int64_t row) const;

 private:
  struct Part {
    std::int64_t first_batch = 0, first_window = 0;
    BatchShape shape;
    std::int64_t pieces = 1;  // of a window
  };
  const Part& part_of(std::int64_t batch) const;

  WindowOrder windows_;
  std::vector<Part> parts_;
};

}  // namespace hybrid_trainer
