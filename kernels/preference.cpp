#include "hybrid_trainer/kernels/preference.h"

#include "kernels/dispatch.h"

namespace hybrid_trainer::kernels {

namespace cpu {
decltype(kernels::preference_loss) preference_loss;
decltype(kernels::scale_rows) scale_rows;
}  // namespace cpu
namespace cuda {
decltype(kernels::preference_loss) preference_loss;
decltype(kernels::scale_rows) scale_rows;
}  // namespace cuda

void preference_loss(const PreferenceTensors& t, const PreferenceForm& form, const Stream& stream) {
  const KernelCall call{"preference_loss", stream};
  check_rank(call, {"halves", t.halves}, 2);
  const Shape shape = t.halves.shape();
  check_shape(call, {"halves", t.halves}, shape, DType::kI32);
  check_shape(call, {"losses", t.losses}, shape, DType::kF32);
  check_shape(call, {"references", t.references}, shape, DType::kF32);
  check_shape(call, {"pair_losses", t.pair_losses}, shape, DType::kF32);
  check_shape(call, {"weights", t.weights}, shape, DType::kF32);
  check_shape(call, {"sums", t.sums}, shape, DType::kF64);
  if (t.measures) check_shape(call, {"measures", t.measures}, {kPreferenceMeasures}, DType::kF64);
  dispatch_with_workspace<cpu::preference_loss, cuda::preference_loss>(call, Work::kLoss, t, form);
}

void scale_rows(const Tensor& x, const Tensor& factors, const Stream& stream) {
  const KernelCall call{"scale_rows", stream};
  check_real(call, {"x", x}, 2);
  check_shape(call, {"factors", factors}, {x.size(0)}, DType::kF32);
  dispatch<cpu::scale_rows, cuda::scale_rows>(call, Work::kElementwise, x, factors);
}

}  // namespace hybrid_trainer::kernels
