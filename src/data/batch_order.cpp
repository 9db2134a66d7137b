#include "hybrid_trainer/data/batch_order.h"

#include <algorithm>

#include "hybrid_trainer/core/error.h"

namespace hybrid_trainer {

BatchOrder::BatchOrder(std::int64_t tokens, const BatchSettings& settings, const std::string& name)
    : windows_(tokens, settings, name) {
  const BatchShape longest{settings.batch_size, settings.sequence_length};
  Part next{.shape = longest};
  for (const BatchStretch& stretch : settings.stretches) {
    next.shape = stretch.shape;
    require(next.shape.sequence_length >= 1 &&
                longest.sequence_length % next.shape.sequence_length == 0,
            "a stretch's sequences are a whole part of the longest");
    next.pieces = longest.sequence_length / next.shape.sequence_length;
    require(stretch.batches >= 0 && stretch.batches % next.pieces == 0,
            "a stretch uses its windows up");
    require(next.shape.batch_size >= 1 && next.shape.tokens() <= longest.tokens(),
            "a stretch's batches are no larger than the others");
    parts_.push_back(next);
    next.first_batch += stretch.batches;
    next.first_window += stretch.batches / next.pieces * next.shape.batch_size;
  }
  next.shape = longest;
  next.pieces = 1;
  parts_.push_back(next);
}

const BatchOrder::Part& BatchOrder::part_of(std::int64_t batch) const {
  return *std::find_if(parts_.rbegin(), parts_.rend(),
                       [&](const Part& part) { return part.first_batch <= batch; });
}

std::int64_t BatchOrder::start_of(std::int64_t batch, std::int64_t row) const {
  const Part& part = part_of(batch);
  const std::int64_t index = batch - part.first_batch;
  const std::int64_t window = part.first_window + index / part.pieces * part.shape.batch_size + row;
  return windows_.start_of(window) + index % part.pieces * part.shape.sequence_length;
}

}  // namespace hybrid_trainer
