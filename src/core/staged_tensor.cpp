#include "hybrid_trainer/core/staged_tensor.h"

namespace hybrid_trainer {

StagedTensor::StagedTensor(const Tensor& tensor, Use use, const Stream& stream, bool elsewhere)
    : tensor_(tensor), here_(tensor), stream_(stream) {
  if (!tensor || !elsewhere) return;
  here_ = Tensor::empty_like(tensor, tensor.kind(), stream);
  if (use != Use::kWrite) copy_or_wait(here_, tensor, stream);
  goes_back_ = use != Use::kRead;
}

StagedTensor::~StagedTensor() {
  if (goes_back_) copy_or_wait(tensor_, here_, stream_);
}

}  // namespace hybrid_trainer
