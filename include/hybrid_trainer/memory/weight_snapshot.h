#pragma once

#include <memory>
#include <vector>

#include "hybrid_trainer/core/tensor.h"

namespace hybrid_trainer {

/// A copy of tensors, of MemoryKind::kSnapshot in a pool of its own choice, to return to. The
/// tensors themselves are views of what others own and must keep their memory until drop.
class WeightSnapshot {
 public:
  explicit WeightSnapshot(std::shared_ptr<MemoryPool> pool) : host_(std::move(pool)) {}

  /// Copies the tensors in the order of the stream, instead of what was held before. Throws
  /// OutOfMemory, and then holds nothing.
  void take(std::vector<Tensor> tensors, const Stream& stream);
  bool taken() const { return !copies_.empty(); }
  /// Writes the copies back, bit for bit.
  void restore(const Stream& stream);
  /// Frees the copies, to the system too, once they are read for the last time.
  void drop();
  /// The copies in the order of take, to be written to a checkpoint or filled from one, once the
  /// stream of take has come to them.
  const std::vector<Tensor>& copies() const { return copies_; }

 private:
  Stream host_;
  Event last_use_;
  std::vector<Tensor> tensors_;
  std::vector<Tensor> copies_;
};

}  // namespace hybrid_trainer
