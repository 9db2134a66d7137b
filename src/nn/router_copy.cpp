#include "hybrid_trainer/nn/router_copy.h"

#include "hybrid_trainer/kernels/matmul.h"

namespace hybrid_trainer {

RouterCopy RouterCopy::of(Linear& router, const Stream& stream) {
  const Parameter& weight = router.weight();
  if (!weight.trainable()) return {};
  const auto copy_of = [&](const Tensor& values) {
    Tensor kept = Tensor::empty_like(values, MemoryKind::kSnapshot, stream);
    copy(kept, values, stream);
    return kept;
  };
  return {.weight = copy_of(weight.acquire(weight.compute_dtype(), stream)),
          .bias = router.bias() == nullptr ? Tensor{} : copy_of(router.acquire_bias(stream))};
}

Tensor RouterCopy::logits(const Tensor& x, const Stream& stream) const {
  Tensor logits =
      Tensor::empty({x.size(0), weight.size(0)}, x.dtype(), MemoryKind::kWorkspace, stream);
  kernels::linear_forward(logits, x, weight, bias, Tensor{}, stream);
  return logits;
}

}  // namespace hybrid_trainer
