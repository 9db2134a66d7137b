#include "hybrid_trainer/kernels/loss.h"

#include "kernels/dispatch.h"

namespace hybrid_trainer::kernels {

namespace cpu {
decltype(kernels::softmax_cross_entropy) softmax_cross_entropy;
}  // namespace cpu
namespace cuda {
decltype(kernels::softmax_cross_entropy) softmax_cross_entropy;
}  // namespace cuda

void softmax_cross_entropy(const Tensor& losses, const Tensor& logits, const Tensor& targets,
                           std::int64_t vocabulary, float gradient_scale, const Stream& stream) {
  const KernelCall call{"softmax_cross_entropy", stream};
  check_real(call, {"logits", logits}, 2);
  check_shape(call, {"targets", targets}, {logits.size(0)}, DType::kI32);
  check_shape(call, {"losses", losses}, {logits.size(0)}, DType::kF32);
  if (vocabulary < 1 || vocabulary > logits.size(1)) {
    throw ShapeMismatch(concat(call.kernel, ": logits is ", logits.shape().text(),
                               ", vocabulary is ", vocabulary, "; want 1 to ", logits.size(1)));
  }
  dispatch_with_workspace<cpu::softmax_cross_entropy, cuda::softmax_cross_entropy>(
      call, Work::kLoss, losses, logits, targets, vocabulary, gradient_scale);
}

std::int64_t logits_chunk_bytes(const Stream& stream) {
  return std::int64_t{stream.device().type == DeviceType::kCpu ? 52 : 790} << 20;
}

}  // namespace hybrid_trainer::kernels
