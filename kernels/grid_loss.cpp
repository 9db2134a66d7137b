#include "hybrid_trainer/kernels/grid_loss.h"

#include "kernels/dispatch.h"

namespace hybrid_trainer::kernels {

namespace cpu {
decltype(kernels::grid_loss) grid_loss;
}  // namespace cpu
namespace cuda {
decltype(kernels::grid_loss) grid_loss;
}  // namespace cuda

void grid_loss(const Tensor& losses, const Tensor& x, const Tensor& classes, const Tensor& boxes,
               const GridLossSpec& spec, float gradient_scale, const Stream& stream) {
  const KernelCall call{"grid_loss", stream};
  check_rank(call, {"x", x}, 2);
  check_dtype(call, {"x", x}, DType::kF32);
  if (x.size(1) < 6)
    throw ShapeMismatch(concat(call.kernel, ": x is ", x.shape().text(),
                               ", want (cells, 5 + classes), and at least one class"));
  check_shape(call, {"losses", losses}, {x.size(0)}, DType::kF32);
  check_shape(call, {"classes", classes}, {x.size(0)}, DType::kI32);
  check_shape(call, {"boxes", boxes}, {x.size(0), 4}, DType::kF32);
  if (!(spec.beta > 0))
    throw Error(ExitCode::kInternal,
                concat(call.kernel, ": beta is ", spec.beta, ", want a number above 0"));
  dispatch<cpu::grid_loss, cuda::grid_loss>(call, Work::kLoss, losses, x, classes, boxes, spec,
                                            gradient_scale);
}

}  // namespace hybrid_trainer::kernels
