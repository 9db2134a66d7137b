#pragma once

#include <memory>
#include <vector>

#include "hybrid_trainer/nn/parameter.h"

namespace hybrid_trainer {

/// A copy of weights' masters to return to, of MemoryKind::kSnapshot in the given pool.
class WeightSnapshot {
 public:
  explicit WeightSnapshot(std::shared_ptr<MemoryPool> pool) : host_(std::move(pool)) {}

  /// Copies in stream order, replacing the previous copies. Throws OutOfMemory, and then holds
  /// nothing.
  void take(const std::vector<Parameter*>& parameters, const Stream& stream);
  bool taken() const { return !copies_.empty(); }
  /// Writes the copies back, bit for bit, to the parameters of take.
  void restore(const std::vector<Parameter*>& parameters, const Stream& stream);
  /// Frees the copies, returning them to the system, once their last read is done.
  void drop();
  /// The copies in the order of take, to be written to a checkpoint or filled from one, once the
  /// stream of take has reached them.
  const std::vector<Tensor>& copies() const { return copies_; }

 private:
  Stream host_;
  Event last_use_;
  std::vector<Tensor> copies_;
};

}  // namespace hybrid_trainer
