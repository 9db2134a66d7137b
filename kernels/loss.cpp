#include "hybrid_trainer/kernels/loss.h"

#include "kernels/dispatch.h"

namespace hybrid_trainer::kernels {

namespace cpu {
decltype(kernels::smoothed_cross_entropy) smoothed_cross_entropy;
}  // namespace cpu
namespace cuda {
decltype(kernels::smoothed_cross_entropy) smoothed_cross_entropy;
}  // namespace cuda

namespace {

void cross_entropy(const KernelCall& call, const Tensor& losses, const Tensor& logits,
                   const Tensor& targets, const SmoothedTargets& spec, float gradient_scale) {
  check_real(call, {"logits", logits}, 2);
  check_shape(call, {"targets", targets}, {logits.size(0)}, DType::kI32);
  check_shape(call, {"losses", losses}, {logits.size(0)}, DType::kF32);
  if (spec.vocabulary < 1 || spec.vocabulary > logits.size(1)) {
    throw ShapeMismatch(concat(call.kernel, ": logits is ", logits.shape().text(),
                               ", vocabulary is ", spec.vocabulary, "; want 1 to ",
                               logits.size(1)));
  }
  dispatch_with_workspace<cpu::smoothed_cross_entropy, cuda::smoothed_cross_entropy>(
      call, Work::kLoss, losses, logits, targets, spec, gradient_scale);
}

}  // namespace

void softmax_cross_entropy(const Tensor& losses, const Tensor& logits, const Tensor& targets,
                           std::int64_t vocabulary, float gradient_scale, const Stream& stream) {
  cross_entropy({"softmax_cross_entropy", stream}, losses, logits, targets, {vocabulary},
                gradient_scale);
}

void smoothed_cross_entropy(const Tensor& losses, const Tensor& logits, const Tensor& targets,
                            const SmoothedTargets& spec, float gradient_scale,
                            const Stream& stream) {
  const KernelCall call{"smoothed_cross_entropy", stream};
  if (!(spec.smoothing >= 0 && spec.smoothing < 1))
    throw Error(ExitCode::kInternal, concat(call.kernel, ": the smoothing is ", spec.smoothing,
                                            ", want at least 0 and below 1"));
  cross_entropy(call, losses, logits, targets, spec, gradient_scale);
}

std::int64_t logits_chunk_bytes(const Stream& stream) {
  return std::int64_t{stream.device().type == DeviceType::kCpu ? 52 : 790} << 20;
}

}  // namespace hybrid_trainer::kernels
