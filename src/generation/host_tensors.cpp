#include "src/generation/host_tensors.h"

#include <algorithm>

#include "hybrid_trainer/kernels/elementwise.h"

namespace hybrid_trainer {

Tensor device_tokens(std::span<const std::int32_t> tokens, const Shape& shape,
                     const Stream& stream) {
  const Stream host(MemoryPool::create("host"));
  const Tensor values = Tensor::empty(shape, DType::kI32, MemoryKind::kData, host);
  std::ranges::copy(tokens, values.data<std::int32_t>());
  return wait_for_device(values, stream);
}

Tensor host_f32(const Tensor& values, const Stream& host, const Stream& stream) {
  stream.synchronize();
  Tensor there = values;
  if (values.device() != host.device()) {
    there = Tensor::empty_like(values, MemoryKind::kLogits, host);
    wait_for_copy(there, values, stream);
  }
  if (there.dtype() == DType::kF32) return there;
  const Tensor wide = Tensor::empty(there.shape(), DType::kF32, MemoryKind::kLogits, host);
  kernels::cast(wide, there, host);
  return wide;
}

}  // namespace hybrid_trainer
