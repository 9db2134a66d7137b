#include "hybrid_trainer/memory/frozen_weight.h"

#include "hybrid_trainer/kernels/elementwise.h"

namespace hybrid_trainer {

Tensor FrozenWeight::acquire(DType dtype, const Stream& stream) {
  return of(dtype).acquire([&] { return values_in(dtype, stream); });
}

void FrozenWeight::release(DType dtype, Use, const Stream&) noexcept { of(dtype).release(); }

FrozenRealWeight::FrozenRealWeight(const Tensor& values, DType dtype, const Stream& home)
    : values_(Tensor::empty(values.shape(), dtype, MemoryKind::kParameters, home)) {
  if (values.device().simulated) return;
  const Stream host(values.pool());
  const Tensor rounded = Tensor::empty(values.shape(), dtype, MemoryKind::kWorkspace, host);
  kernels::cast(rounded, values, host);
  wait_for_copy(values_, rounded, home);
}

bool FrozenRealWeight::stays(DType dtype, const Stream& stream) const {
  return values_.dtype() == dtype && values_.device().type == stream.device().type;
}

Tensor FrozenRealWeight::values_in(DType dtype, const Stream& stream) const {
  if (stays(dtype, stream)) return values_;
  Tensor here = Tensor::empty(values_.shape(), dtype, MemoryKind::kWorkspace, stream);
  kernels::cast(here, StagedTensor(values_, Use::kRead, stream), stream);
  return here;
}

}  // namespace hybrid_trainer
