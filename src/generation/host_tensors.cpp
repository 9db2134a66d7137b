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

Tensor host_f32(const Tensor& values, const Stream& stream) {
  const Tensor there = wait_for_host(values, stream);
  if (there.dtype() == DType::kF32) return there;
  const Stream host(MemoryPool::create("host"));
  const Tensor wide = Tensor::empty(there.shape(), DType::kF32, MemoryKind::kLogits, host);
  kernels::cast(wide, there, host);
  return wide;
}

}  // namespace hybrid_trainer
