#include "content_store.h"

namespace hybrid_trainer {

FileStore::FileStore(const std::string& folder, std::shared_ptr<MemoryPool> pool)
    : file_(folder, "predict_aware_memory.offload_target"), host_(std::move(pool)) {}

void FileStore::keep(const std::vector<OffloadSlot>& slots, const Stream& stream) {
  std::int64_t at = 0;
  try {
    for (const OffloadSlot& slot : slots) {
      const Tensor& tensor = *slot.tensor;
      file_.wait_for_write(tensor, at, stream);
      kept_.push_back({tensor.shape(), tensor.dtype(), tensor.kind()});
      at += static_cast<std::int64_t>(tensor.bytes());
    }
  } catch (...) {
    forget();
    throw;
  }
}

void FileStore::prefetch() {
  std::vector<Tensor> read;
  std::int64_t at = 0;
  for (const Kept& kept : kept_) {
    read.push_back(Tensor::empty(kept.shape, kept.dtype, kept.kind, host_));
    file_.wait_for_read(read.back(), at, host_);
    at += static_cast<std::int64_t>(read.back().bytes());
  }
  prefetched_ = std::move(read);
}

void FileStore::write_to(const std::vector<Tensor>& tensors, const Stream& stream) const {
  std::int64_t at = 0;
  for (std::size_t i = 0; i < tensors.size(); ++i) {
    if (prefetched_.empty()) {
      file_.wait_for_read(tensors[i], at, stream);
    } else if (blocks(stream)) {
      copy_alone(tensors[i], prefetched_[i]);
    } else {
      copy(tensors[i], prefetched_[i], stream);
    }
    at += static_cast<std::int64_t>(tensors[i].bytes());
  }
}

void FileStore::forget() {
  file_.clear();
  kept_.clear();
  prefetched_.clear();
  host_.pool()->trim();
}

}  // namespace hybrid_trainer
