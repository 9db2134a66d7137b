#include "hybrid_trainer/nn/weight.h"

#include "hybrid_trainer/kernels/elementwise.h"

namespace hybrid_trainer {

Tensor ResidentWeight::acquire(DType dtype, const Stream&) {
  if (dtype == DType::kF32) return master_;
  require(copy_.defined(), "a weight has no bf16 compute copy; call Parameter::compute_in first");
  return copy_;
}

void ResidentWeight::compute_in(DType dtype, const Stream& stream) {
  if (dtype != DType::kBF16) {
    copy_ = {};
    return;
  }
  if (!copy_) copy_ = Tensor::empty(master_.shape(), DType::kBF16, MemoryKind::kParameters, stream);
  refresh_compute_copy(stream);
}

void ResidentWeight::refresh_compute_copy(const Stream& stream) {
  if (copy_) kernels::cast(copy_, master_, stream);
}

}  // namespace hybrid_trainer
