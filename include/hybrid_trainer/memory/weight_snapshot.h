#pragma once

#include <memory>
#include <vector>

#include "hybrid_trainer/core/tensor.h"

namespace hybrid_trainer {

/// A copy of tensors to return to, of MemoryKind::kSnapshot in the given pool. The tensors are
/// views of what others own and must keep their memory until drop.
class WeightSnapshot {
 public:
  explicit WeightSnapshot(std::shared_ptr<MemoryPool> pool) : host_(std::move(pool)) {}

  /// Copies the tensors in stream order, replacing the previous copies. Throws OutOfMemory, and
  /// then holds nothing.
  void take(std::vector<Tensor> tensors, const Stream& stream);
  bool taken() const { return !copies_.empty(); }
  /// Writes the copies back, bit for bit.
  void restore(const Stream& stream);
  /// Frees the copies, returning them to the system, once their last read is done.
  void drop();
  /// The copies in the order of take, to be written to a checkpoint or filled from one, once the
  /// stream of take has reached them.
  const std::vector<Tensor>& copies() const { return copies_; }

 private:
  Stream host_;
  Event last_use_;
  std::vector<Tensor> tensors_;
  std::vector<Tensor> copies_;
};

}  // namespace hybrid_trainer
