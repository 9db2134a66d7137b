#include "kernels/generated/loss.h"

#include "kernels/backend/dispatch.h"

namespace hybrid_trainer::kernels {

namespace {

void cross_entropy(const KernelCall& call, const Tensor& losses, const Tensor& logits,
                   const Tensor& targets, const SmoothedTargets& spec, float gradient_scale) {
  check_real(call, {"logits", logits}, 2);
  check_shape(call, {"targets", targets}, {logits.size(0)}, DType::kI32);
  check_shape(call, {"losses", losses}, {logits.size(0)}, DType::kF32);
  if (spec.vocabulary < 1 || spec.vocabulary > logits.size(1))
    throw_mismatch(call, "logits is ", logits.shape().text(), ", vocabulary is ", spec.vocabulary,
                   "; want 1 to ", logits.size(1));
  dispatch_with_workspace<cpu::smoothed_cross_entropy, cuda::smoothed_cross_entropy>(
      call, losses, logits, targets, spec, gradient_scale);
}

}  // namespace

void softmax_cross_entropy(const Tensor& losses, const Tensor& logits, const Tensor& targets,
                           std::int64_t vocabulary, float gradient_scale, const Stream& stream) {
  cross_entropy({"softmax_cross_entropy", stream, Work::kLoss}, losses, logits, targets,
                {vocabulary}, gradient_scale);
}

void smoothed_cross_entropy(const Tensor& losses, const Tensor& logits, const Tensor& targets,
                            const SmoothedTargets& spec, float gradient_scale,
                            const Stream& stream) {
  const KernelCall call{"smoothed_cross_entropy", stream, Work::kLoss};
  if (!(spec.smoothing >= 0 && spec.smoothing < 1))
    throw Error(ExitCode::kInternal, concat(call.kernel, ": the smoothing is ", spec.smoothing,
                                            ", want at least 0 and below 1"));
  cross_entropy(call, losses, logits, targets, spec, gradient_scale);
}

std::int64_t logits_chunk_bytes(const Stream& stream) {
  return std::int64_t{stream.device().type == DeviceType::kCpu ? 52 : 790} << 20;
}

void regression_loss(const Tensor& losses, const Tensor& x, const Tensor& targets,
                     Distance distance, float delta, float gradient_scale, const Stream& stream) {
  const KernelCall call{"regression_loss", stream, Work::kLoss};
  check_shape(call, {"x", x}, x.shape(), DType::kF32);
  check_shape(call, {"targets", targets}, x.shape(), DType::kF32);
  check_dtype(call, {"losses", losses}, DType::kF32);
  if (losses.elements() != x.elements())
    throw_mismatch(call, "losses is ", losses.shape().text(), ", want ", x.elements(), " elements");
  if (!(delta > 0))
    throw Error(ExitCode::kInternal,
                concat(call.kernel, ": delta is ", delta, ", want a number above 0"));
  dispatch<cpu::regression_loss, cuda::regression_loss>(call, losses, x, targets, distance, delta,
                                                        gradient_scale);
}

void grid_loss(const Tensor& losses, const Tensor& x, const Tensor& classes, const Tensor& boxes,
               const GridLossSpec& spec, float gradient_scale, const Stream& stream) {
  const KernelCall call{"grid_loss", stream, Work::kLoss};
  check_rank(call, {"x", x}, 2, DType::kF32);
  if (x.size(1) < 6)
    throw_mismatch(call, "x is ", x.shape().text(),
                   ", want (cells, 5 + classes), and at least one class");
  check_shape(call, {"losses", losses}, {x.size(0)}, DType::kF32);
  check_shape(call, {"classes", classes}, {x.size(0)}, DType::kI32);
  check_shape(call, {"boxes", boxes}, {x.size(0), 4}, DType::kF32);
  if (!(spec.beta > 0))
    throw Error(ExitCode::kInternal,
                concat(call.kernel, ": beta is ", spec.beta, ", want a number above 0"));
  dispatch<cpu::grid_loss, cuda::grid_loss>(call, losses, x, classes, boxes, spec, gradient_scale);
}

void preference_loss(const PreferenceTensors& t, const PreferenceForm& form, const Stream& stream) {
  const KernelCall call{"preference_loss", stream, Work::kLoss};
  check_rank(call, {"halves", t.halves}, 2);
  const Shape shape = t.halves.shape();
  check_shape(call, {"halves", t.halves}, shape, DType::kI32);
  check_shape(call, {"losses", t.losses}, shape, DType::kF32);
  check_shape(call, {"references", t.references}, shape, DType::kF32);
  check_shape(call, {"pair_losses", t.pair_losses}, shape, DType::kF32);
  check_shape(call, {"weights", t.weights}, shape, DType::kF32);
  check_shape(call, {"sums", t.sums}, shape, DType::kF64);
  if (t.measures) check_shape(call, {"measures", t.measures}, {kPreferenceMeasures}, DType::kF64);
  dispatch_with_workspace<cpu::preference_loss, cuda::preference_loss>(call, t, form);
}

void scale_rows(const Tensor& x, const Tensor& factors, const Stream& stream) {
  const KernelCall call{"scale_rows", stream, Work::kElementwise};
  check_real(call, {"x", x}, 2);
  check_shape(call, {"factors", factors}, {x.size(0)}, DType::kF32);
  dispatch<cpu::scale_rows, cuda::scale_rows>(call, x, factors);
}

}  // namespace hybrid_trainer::kernels
