#include "hybrid_trainer/memory/weight_snapshot.h"

#include "hybrid_trainer/kernels/elementwise.h"

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

void WeightSnapshot::shrink_towards(double fraction, const Stream& stream) const {
  require(taken(), "snapshot: shrink_towards without take");
  require(fraction >= 0 && fraction <= 1, "snapshot: shrink_towards wants a fraction in [0, 1]");
  if (fraction == 1) return;
  if (fraction == 0) return restore(stream);
  for (std::size_t i = 0; i < tensors_.size(); ++i) {
    kernels::axpy(tensors_[i], -1.0f, copies_[i], stream);
    kernels::scale(tensors_[i], tensors_[i], static_cast<float>(fraction), stream);
    kernels::add(tensors_[i], tensors_[i], copies_[i], stream);
  }
}

void WeightSnapshot::drop() {
  tensors_.clear();
  copies_.clear();
  copies_stream_.pool()->trim();
}

}  // namespace hybrid_trainer
