#include "hybrid_trainer/core/batch_upload.h"

namespace hybrid_trainer {

Batch BatchUpload::to_device(const Batch& batch, const Stream& stream) {
  if (batch.tensors().front().tensor.device() == stream.device()) return batch;
  uploaded_.resize(batch.tensors().size());
  auto next = uploaded_.begin();
  return batch.with([&](const Tensor& part) {
    copy_part(*next, part, stream);
    return *next++;
  });
}

void BatchUpload::copy_part(Tensor& uploaded, const Tensor& part, const Stream& stream) {
  if (!uploaded || uploaded.shape() != part.shape() || uploaded.dtype() != part.dtype()) {
    uploaded = Tensor::empty_like(part, MemoryKind::kData, stream);
  }
  if (part.pinned()) {
    copy(uploaded, part, stream);
  } else {
    wait_for_copy(uploaded, part, stream);
  }
}

}  // namespace hybrid_trainer
