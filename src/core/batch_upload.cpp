#include "hybrid_trainer/core/batch_upload.h"

namespace hybrid_trainer {

Batch BatchUpload::to_device(const Batch& batch, const Stream& stream) {
  if (batch.inputs.device() == stream.device()) return batch;
  copy_part(uploaded_.inputs, batch.inputs, stream);
  copy_part(uploaded_.targets, batch.targets, stream);
  if (batch.positions) {
    copy_part(uploaded_.positions, batch.positions, stream);
  } else {
    uploaded_.positions = {};
  }
  uploaded_.learnt = batch.learnt;
  return uploaded_;
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
