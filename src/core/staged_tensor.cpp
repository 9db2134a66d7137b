#include "hybrid_trainer/core/staged_tensor.h"

#include <exception>

#include "hybrid_trainer/core/prefetcher.h"

namespace hybrid_trainer {

StagedTensor::StagedTensor(const Tensor& tensor, Use use, const Stream& stream, bool elsewhere,
                           Prefetcher* prefetcher)
    : tensor_(tensor), here_(tensor), stream_(stream), exceptions_(std::uncaught_exceptions()) {
  if (!tensor || !elsewhere) return;
  goes_back_ = use != Use::kRead;
  if (prefetcher != nullptr) {
    here_ = prefetcher->acquire(tensor, stream);
    prefetcher_ = prefetcher;
    return;
  }
  here_ = Tensor::empty_like(tensor, tensor.kind(), stream);
  if (use != Use::kWrite) copy_or_wait(here_, tensor, stream);
}

/// Beside an exception that is on its way, which says more, what goes wrong here is not told.
StagedTensor::~StagedTensor() noexcept(false) {
  if (prefetcher_ != nullptr) prefetcher_->release(tensor_, here_, goes_back_, stream_);
  if (prefetcher_ != nullptr || !goes_back_) return;
  try {
    copy_or_wait(tensor_, here_, stream_);
  } catch (const std::exception&) {
    if (std::uncaught_exceptions() == exceptions_) throw;
  }
}

}  // namespace hybrid_trainer
