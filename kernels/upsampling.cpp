#include "hybrid_trainer/kernels/upsampling.h"

#include "kernels/dispatch.h"
#include "kernels/window_check.h"

namespace hybrid_trainer::kernels {

namespace cpu {
decltype(kernels::upsampling_forward) upsampling_forward;
decltype(kernels::upsampling_backward) upsampling_backward;
}  // namespace cpu
namespace cuda {
decltype(kernels::upsampling_forward) upsampling_forward;
decltype(kernels::upsampling_backward) upsampling_backward;
}  // namespace cuda

namespace {

void check_upsampling(const KernelCall& call, const NamedTensor& x, const NamedTensor& y,
                      const SpatialSizes& factors) {
  check_window(call, x, {});
  const Shape& shape = x.tensor.shape();
  for (std::size_t i = 0; i < static_cast<std::size_t>(spatial_rank(shape)); ++i) {
    if (factors[i] < 1)
      throw ShapeMismatch(concat(call.kernel, ": the factor of dimension ", i + 1, " is ",
                                 factors[i], ", want at least 1"));
  }
  check_shape(call, y, upsampled_shape(shape, factors), x.tensor.dtype());
}

}  // namespace

Shape upsampled_shape(const Shape& x, const SpatialSizes& factors) {
  Shape shape{x[0]};
  for (int i = 0; i < spatial_rank(x); ++i)
    shape.append(x[i + 1] * factors[static_cast<std::size_t>(i)]);
  shape.append(x[x.rank() - 1]);
  return shape;
}

void upsampling_forward(const Tensor& y, const Tensor& x, const SpatialSizes& factors,
                        Interpolation interpolation, const Stream& stream) {
  const KernelCall call{"upsampling_forward", stream};
  check_upsampling(call, {"x", x}, {"y", y}, factors);
  dispatch<cpu::upsampling_forward, cuda::upsampling_forward>(call, Work::kElementwise, y, x,
                                                              factors, interpolation);
}

void upsampling_backward(const Tensor& dx, const Tensor& dy, const SpatialSizes& factors,
                         Interpolation interpolation, const Stream& stream) {
  const KernelCall call{"upsampling_backward", stream};
  check_upsampling(call, {"dx", dx}, {"dy", dy}, factors);
  dispatch<cpu::upsampling_backward, cuda::upsampling_backward>(call, Work::kElementwise, dx, dy,
                                                                factors, interpolation);
}

}  // namespace hybrid_trainer::kernels
