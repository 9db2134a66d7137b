#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "hybrid_trainer/core/batch.h"

namespace hybrid_trainer {

/// The least mean of a loss over new examples: no model does better, however large and long trained.
struct BestLoss {
  std::string name;  // of the loss: "events.loss"
  double value = 0;
};

/// An endless set of examples that can be learnt. Example i follows from the seed and i alone, so that
/// a resumed run and all ranks see the same ones.
class SyntheticSet {
 public:
  virtual ~SyntheticSet() = default;
  /// Memory for so many examples, from the stream's pool. Throws OutOfMemory.
  virtual Batch empty_batch(std::int64_t examples, const Stream& stream) const = 0;
  /// Writes the examples from number `first` on. May run in several threads.
  virtual void write(const Batch& memory, std::uint64_t first) const = 0;
  /// Cross entropies are in nats.
  virtual std::vector<BestLoss> best_losses() const = 0;
};

}  // namespace hybrid_trainer
