#include "content_store.h"

namespace hybrid_trainer {

FileStore::FileStore(const std::string& folder)
    : file_(folder, "predict_aware_memory.offload_target") {}

void FileStore::keep(const std::vector<OffloadSlot>& slots, const Stream& stream) {
  std::int64_t at = 0;
  try {
    for (const OffloadSlot& slot : slots) {
      file_.wait_for_write(*slot.tensor, at, stream);
      at += static_cast<std::int64_t>(slot.tensor->bytes());
    }
  } catch (...) {
    forget();
    throw;
  }
}

void FileStore::write_to(const std::vector<Tensor>& tensors, const Stream& stream) const {
  std::int64_t at = 0;
  for (const Tensor& tensor : tensors) {
    file_.wait_for_read(tensor, at, stream);
    at += static_cast<std::int64_t>(tensor.bytes());
  }
}

}  // namespace hybrid_trainer
