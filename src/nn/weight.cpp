#include "hybrid_trainer/nn/weight.h"

#include "hybrid_trainer/kernels/elementwise.h"

namespace hybrid_trainer {

Tensor ResidentWeight::acquire(DType dtype, const Stream& stream) {
  if (dtype == DType::kF32) {
    if (!master_ && restored_) {
      master_ = Tensor::empty(offloaded_.shape(), DType::kF32, offloaded_.kind(), stream);
      copy(master_, offloaded_, stream);
    }
    return master();
  }
  require(copy_.defined(), "a weight has no bf16 compute copy; call Parameter::compute_in first");
  return copy_;
}

void ResidentWeight::compute_in(DType dtype, const Stream& stream) {
  const bool copies = dtype == DType::kBF16;
  if (copies && copy_ && !master_) return;  // offloaded master weights cannot have changed
  master().set_kind(copies ? MemoryKind::kMasterWeights : MemoryKind::kParameters);
  if (!copies) {
    copy_ = {};
    return;
  }
  if (!copy_)
    copy_ = Tensor::empty(master().shape(), DType::kBF16, MemoryKind::kParameters, stream);
  refresh_compute_copy(stream);
}

void ResidentWeight::refresh_compute_copy(const Stream& stream) {
  if (!copy_) return;
  kernels::cast(copy_, StagedTensor(master(), Use::kRead, stream), stream);
}

void ResidentWeight::offload_master(const Stream& home, const Stream& stream) {
  if (!copy_ || !master_) return;
  if (!offloaded_) offloaded_ = Tensor::empty_like(master_, master_.kind(), home);
  copy(offloaded_, master_, stream);
  master_ = {};
  restored_ = false;
}

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

void LiveWeight::compute_in(DType dtype, const Stream& stream) {
  if (dtype == live_.dtype()) return;
  live_ = Tensor::empty(live_.shape(), dtype, MemoryKind::kParameters, stream);
  refresh_compute_copy(stream);
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
