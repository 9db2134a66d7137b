#include "hybrid_trainer/core/staged_tensor.h"

#include <exception>

namespace hybrid_trainer {

StagedTensor::StagedTensor(const Tensor& tensor, Use use, const Stream& stream, bool elsewhere)
    : tensor_(tensor), here_(tensor), stream_(stream), exceptions_(std::uncaught_exceptions()) {
  if (!tensor || !elsewhere) return;
  here_ = Tensor::empty_like(tensor, tensor.kind(), stream);
  if (use != Use::kWrite) copy_or_wait(here_, tensor, stream);
  goes_back_ = use != Use::kRead;
}

/// Beside an exception that is on its way, which says more, what goes wrong here is not told.
StagedTensor::~StagedTensor() noexcept(false) {
  if (!goes_back_) return;
  try {
    copy_or_wait(tensor_, here_, stream_);
  } catch (const std::exception&) {
    if (std::uncaught_exceptions() == exceptions_) throw;
  }
}

}  // namespace hybrid_trainer
