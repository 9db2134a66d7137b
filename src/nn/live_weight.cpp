#include "hybrid_trainer/nn/live_weight.h"

#include "hybrid_trainer/kernels/elementwise.h"

namespace hybrid_trainer {

LiveWeight::LiveWeight(Tensor master, const Stream& stream)
    : master_(std::move(master)),
      live_(Tensor::empty(master_.shape(), DType::kF32, MemoryKind::kParameters, stream)) {
  refresh_compute_copy(stream);
}

Tensor LiveWeight::acquire(DType dtype, const Stream& stream) {
  if (dtype == live_.dtype()) return live_;
  require(dtype == DType::kF32,
          "a weight has no bf16 compute copy; call Parameter::compute_in first");
  return widened_.acquire([&] {
    const Tensor wide = Tensor::empty(live_.shape(), DType::kF32, MemoryKind::kWorkspace, stream);
    if (is_exact_) {
      copy_or_wait(wide, master_, stream);
    } else {
      kernels::cast(wide, live_, stream);
    }
    return wide;
  });
}

void LiveWeight::release(DType dtype, Use, const Stream&) noexcept {
  if (dtype != live_.dtype()) widened_.release();
}

void LiveWeight::compute_in(DType dtype, const Stream& stream) {
  if (dtype == live_.dtype()) return;
  live_ = Tensor::empty(live_.shape(), dtype, MemoryKind::kParameters, stream);
  refresh_compute_copy(stream);
}

void LiveWeight::refresh_compute_copy(const Stream& stream) {
  refresh_from(StagedTensor(master_, Use::kRead, stream, master_.pool() != stream.pool()), stream);
}

void LiveWeight::refresh_from(const Tensor& masters, const Stream& stream, std::int64_t first_row) {
  const Tensor live = live_.rows(first_row, first_row + masters.size(0));
  if (live.dtype() == DType::kF32) {
    copy_or_wait(live, masters, stream);
  } else {
    kernels::cast(live, StagedTensor(masters, Use::kRead, stream), stream);
  }
  is_exact_ = true;
}

}  // namespace hybrid_trainer
