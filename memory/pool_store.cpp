#include <cstring>

#include "content_store.h"

namespace hybrid_trainer {

void PoolStore::keep(const std::vector<Tensor>& tensors) {
  try {
    for (const Tensor& tensor : tensors) {
      copies_.push_back(Tensor::empty_like(tensor, MemoryKind::kOptimizerState, stream_));
      copy(copies_.back(), tensor, stream_);
    }
  } catch (...) {
    forget();
    throw;
  }
}

void PoolStore::write_to(const std::vector<Tensor>& tensors) const {
  // One plain copy: this runs beside a training step, whose threads the parallel copy() would
  // compete with.
  for (std::size_t i = 0; i < tensors.size(); ++i) {
    std::memcpy(tensors[i].raw(), copies_[i].raw(), tensors[i].bytes());
  }
}

void PoolStore::forget() {
  copies_.clear();
  stream_.pool()->trim();
}

void ZeroStore::write_to(const std::vector<Tensor>& tensors) const {
  for (const Tensor& tensor : tensors) std::memset(tensor.raw(), 0, tensor.bytes());
}

}  // namespace hybrid_trainer
