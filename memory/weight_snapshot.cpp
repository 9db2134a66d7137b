#include "hybrid_trainer/memory/weight_snapshot.h"

namespace hybrid_trainer {

void WeightSnapshot::take(std::vector<Tensor> tensors, const Stream& stream) {
  if (taken()) drop();
  try {
    for (const Tensor& tensor : tensors) {
      copies_.push_back(Tensor::empty_like(tensor, MemoryKind::kSnapshot, host_));
      copy(copies_.back(), tensor, stream);
    }
    last_use_.record(stream);
  } catch (...) {
    last_use_.record(stream);
    drop();
    throw;
  }
  tensors_ = std::move(tensors);
}

void WeightSnapshot::restore(const Stream& stream) {
  require(taken(), "snapshot: restore without take");
  for (std::size_t i = 0; i < tensors_.size(); ++i) copy(tensors_[i], copies_[i], stream);
  last_use_.record(stream);
}

void WeightSnapshot::drop() {
  last_use_.synchronize();
  tensors_.clear();
  copies_.clear();
  host_.pool()->trim();
}

}  // namespace hybrid_trainer
