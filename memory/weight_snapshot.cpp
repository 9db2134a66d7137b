#include "hybrid_trainer/memory/weight_snapshot.h"

namespace hybrid_trainer {

void WeightSnapshot::take(std::vector<Tensor> tensors) {
  if (taken()) drop();
  try {
    for (const Tensor& tensor : tensors) {
      copies_.push_back(Tensor::empty_like(tensor, MemoryKind::kSnapshot, copies_stream_));
      copy(copies_.back(), tensor, copies_stream_);
    }
  } catch (...) {
    drop();
    throw;
  }
  tensors_ = std::move(tensors);
}

void WeightSnapshot::restore(const Stream& stream) const {
  require(taken(), "snapshot: restore without take");
  for (std::size_t i = 0; i < tensors_.size(); ++i) copy(tensors_[i], copies_[i], stream);
}

void WeightSnapshot::drop() {
  tensors_.clear();
  copies_.clear();
  copies_stream_.pool()->trim();
}

}  // namespace hybrid_trainer
