#include "hybrid_trainer/kernels/regression_loss.h"

#include "kernels/dispatch.h"

namespace hybrid_trainer::kernels {

namespace cpu {
decltype(kernels::regression_loss) regression_loss;
}  // namespace cpu
namespace cuda {
decltype(kernels::regression_loss) regression_loss;
}  // namespace cuda

void regression_loss(const Tensor& losses, const Tensor& x, const Tensor& targets,
                     Distance distance, float delta, float gradient_scale, const Stream& stream) {
  const KernelCall call{"regression_loss", stream};
  check_shape(call, {"x", x}, x.shape(), DType::kF32);
  check_shape(call, {"targets", targets}, x.shape(), DType::kF32);
  check_dtype(call, {"losses", losses}, DType::kF32);
  if (losses.elements() != x.elements())
    throw ShapeMismatch(concat(call.kernel, ": losses is ", losses.shape().text(), ", want ",
                               x.elements(), " elements"));
  if (!(delta > 0))
    throw Error(ExitCode::kInternal,
                concat(call.kernel, ": delta is ", delta, ", want a number above 0"));
  dispatch<cpu::regression_loss, cuda::regression_loss>(call, Work::kLoss, losses, x, targets,
                                                        distance, delta, gradient_scale);
}

}  // namespace hybrid_trainer::kernels
