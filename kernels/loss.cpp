#include "hybrid_trainer/kernels/loss.h"

#include "kernels/check.h"
#include "kernels/cpu/loss.h"
#include "kernels/cuda/loss.h"

namespace hybrid_trainer::kernels {

void softmax_cross_entropy(const Tensor& losses, const Tensor& logits, const Tensor& targets,
                           std::int64_t vocabulary, float gradient_scale, const Stream& stream) {
  constexpr auto kKernel = "softmax_cross_entropy";
  check_rank(kKernel, {"logits", logits}, 2);
  check_real(kKernel, {"logits", logits});
  check_shape(kKernel, {"targets", targets}, {logits.size(0)});
  check_dtype(kKernel, {"targets", targets}, DType::kI32);
  check_shape(kKernel, {"losses", losses}, {logits.size(0)});
  check_dtype(kKernel, {"losses", losses}, DType::kF32);
  if (vocabulary < 1 || vocabulary > logits.size(1)) {
    throw ShapeMismatch(concat(kKernel, ": logits is ", logits.shape().text(), ", vocabulary is ",
                               vocabulary, "; want 1 to ", logits.size(1)));
  }
  visit_backend(stream, Work::kLoss, [&](auto backend) {
    softmax_cross_entropy(backend, losses, logits, targets, vocabulary, gradient_scale);
  });
}

}  // namespace hybrid_trainer::kernels
