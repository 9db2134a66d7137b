#include "hybrid_trainer/nn/weight.h"

#include "hybrid_trainer/kernels/elementwise.h"

namespace hybrid_trainer {

Tensor ResidentWeight::acquire(DType dtype, const Stream& stream) {
  if (dtype == DType::kF32) {
    if (!master_ && recalled_) {
      master_ = Tensor::empty(parked_.shape(), DType::kF32, parked_.kind(), stream);
      copy(master_, parked_, stream);
    }
    return master();
  }
  require(copy_.defined(), "a weight has no bf16 compute copy; call Parameter::compute_in first");
  return copy_;
}

void ResidentWeight::compute_in(DType dtype, const Stream& stream) {
  const bool copies = dtype == DType::kBF16;
  if (copies && copy_ && !master_) return;  // parked masters did not change since it was made
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

void ResidentWeight::park_master(const Stream& home, const Stream& stream) {
  if (!copy_ || !master_) return;
  if (!parked_) parked_ = Tensor::empty_like(master_, master_.kind(), home);
  copy(parked_, master_, stream);
  master_ = {};
  recalled_ = false;
}

}  // namespace hybrid_trainer
