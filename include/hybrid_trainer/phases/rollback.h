#pragma once

#include <cstdint>

#include "hybrid_trainer/core/batch.h"

namespace hybrid_trainer {

/// What a prediction keeps so that it can be undone: the weights before it, and its batches.
class Rollback {
 public:
  virtual ~Rollback() = default;
  /// Keeps a copy of the weights until drop_snapshot. While it exists, it is part of what the
  /// trainer saves, as weights and moments are.
  virtual void save_snapshot() = 0;
  /// Writes the copy back bit for bit, any number of times.
  virtual void restore_snapshot() = 0;
  virtual void drop_snapshot() = 0;
  /// Copies a step's batch for as long as a prediction is not decided on. The copy lies where the
  /// snapshot does, so that a step on it finds as much device memory as any other. Blocks.
  virtual Batch keep_batch(const Batch& batch) = 0;
  /// Copies such a batch to where a step can compute with it. Blocks.
  virtual Batch fetch_batch(const Batch& kept) = 0;
  /// Until the next call, schedule and dropout act as `steps` steps before the current one, so that
  /// a replay of earlier batches is bit-identical to having trained on them then.
  virtual void rewind(std::int64_t steps) = 0;
};

}  // namespace hybrid_trainer
