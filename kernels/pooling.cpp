#include "hybrid_trainer/kernels/pooling.h"

#include "kernels/dispatch.h"
#include "kernels/window_check.h"

namespace hybrid_trainer::kernels {

namespace cpu {
decltype(kernels::mean_pooling_forward) mean_pooling_forward;
decltype(kernels::mean_pooling_backward) mean_pooling_backward;
decltype(kernels::max_pooling_forward) max_pooling_forward;
decltype(kernels::max_pooling_backward) max_pooling_backward;
}  // namespace cpu
namespace cuda {
decltype(kernels::mean_pooling_forward) mean_pooling_forward;
decltype(kernels::mean_pooling_backward) mean_pooling_backward;
decltype(kernels::max_pooling_forward) max_pooling_forward;
decltype(kernels::max_pooling_backward) max_pooling_backward;
}  // namespace cuda

namespace {

enum class Dilation { kOne, kAny };

void check_pooling(const KernelCall& call, const NamedTensor& x, const NamedTensor& y,
                   const Window& window, Dilation dilation) {
  check_window(call, x, window);
  const Shape& shape = x.tensor.shape();
  for (std::size_t i = 0; i < static_cast<std::size_t>(spatial_rank(shape)); ++i) {
    if (2 * window.padding[i] > window.kernel[i]) {
      throw ShapeMismatch(concat(call.kernel, ": in dimension ", i + 1, " the padding is ",
                                 window.padding[i], " and the kernel ", window.kernel[i],
                                 "; want a padding of at most half the kernel"));
    }
    if (dilation == Dilation::kOne && window.dilation[i] != 1) {
      throw ShapeMismatch(concat(call.kernel, ": in dimension ", i + 1, " the dilation is ",
                                 window.dilation[i], "; want 1"));
    }
  }
  check_shape(call, y, window_outputs(shape, window, shape[shape.rank() - 1]), x.tensor.dtype());
}

void check_places(const KernelCall& call, const Tensor& x, const Tensor& y, const Tensor& places) {
  check_shape(call, {"places", places}, y.shape(), DType::kI32);
  if (places_of(x.shape()) > std::int64_t{1} << 31)
    throw ShapeMismatch(concat(call.kernel, ": an example of ", x.shape().text(),
                               " has more places than fit 32 bits"));
}

}  // namespace

void mean_pooling_forward(const Tensor& y, const Tensor& x, const Window& window, Divisor divisor,
                          const Stream& stream) {
  const KernelCall call{"mean_pooling_forward", stream};
  check_pooling(call, {"x", x}, {"y", y}, window, Dilation::kOne);
  dispatch<cpu::mean_pooling_forward, cuda::mean_pooling_forward>(call, Work::kElementwise, y, x,
                                                                  window, divisor);
}

void mean_pooling_backward(const Tensor& dx, const Tensor& dy, const Window& window,
                           Divisor divisor, const Stream& stream) {
  const KernelCall call{"mean_pooling_backward", stream};
  check_pooling(call, {"dx", dx}, {"dy", dy}, window, Dilation::kOne);
  dispatch<cpu::mean_pooling_backward, cuda::mean_pooling_backward>(call, Work::kElementwise, dx,
                                                                    dy, window, divisor);
}

void max_pooling_forward(const Tensor& y, const Tensor& places, const Tensor& x,
                         const Window& window, const Stream& stream) {
  const KernelCall call{"max_pooling_forward", stream};
  check_pooling(call, {"x", x}, {"y", y}, window, Dilation::kAny);
  check_places(call, x, y, places);
  dispatch<cpu::max_pooling_forward, cuda::max_pooling_forward>(call, Work::kElementwise, y, places,
                                                                x, window);
}

void max_pooling_backward(const Tensor& dx, const Tensor& dy, const Tensor& places,
                          const Window& window, const Stream& stream) {
  const KernelCall call{"max_pooling_backward", stream};
  check_pooling(call, {"dx", dx}, {"dy", dy}, window, Dilation::kAny);
  check_places(call, dx, dy, places);
  dispatch<cpu::max_pooling_backward, cuda::max_pooling_backward>(call, Work::kElementwise, dx, dy,
                                                                  places, window);
}

}  // namespace hybrid_trainer::kernels
