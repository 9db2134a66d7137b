#include "kernels/window_check.h"

namespace hybrid_trainer::kernels {
namespace {

void check_dimension(const KernelCall& call, const NamedTensor& x, const Window& window,
                     std::size_t i) {
  const std::int64_t size = x.tensor.size(static_cast<int>(i) + 1);
  const auto refuse = [&](const std::string& wanted) {
    throw ShapeMismatch(concat(
        call.kernel, ": ", x.name, " is ", x.tensor.shape().text(), ", whose dimension ", i + 1,
        " has ", size, " places; the kernel is ", window.kernel[i], ", stride ", window.stride[i],
        ", padding ", window.padding[i], ", dilation ", window.dilation[i], "; want ", wanted));
  };
  if (window.kernel[i] < 1 || window.stride[i] < 1 || window.dilation[i] < 1)
    refuse("kernel, stride and dilation of at least 1");
  if (window.padding[i] < 0) refuse("a padding of at least 0");
  if (window.padding[i] >= window.reach(i) && window.padding[i] > 0)
    refuse(concat("a padding below ", window.reach(i), ", so that each window reads a place of ",
                  x.name));
  if (window.outputs(i, size) < 1)
    refuse(concat("at least ", window.reach(i) - 2 * window.padding[i], " places"));
}

}  // namespace

void check_window(const KernelCall& call, const NamedTensor& x, const Window& window) {
  check_real(call, x);
  const Shape& shape = x.tensor.shape();
  if (shape.rank() < 3 || shape.rank() > 5 || shape.elements() == 0) {
    throw ShapeMismatch(
        concat(call.kernel, ": ", x.name, " is ", shape.text(),
               ", want (batch, one to three dimensions of space, channels), each at "
               "least 1"));
  }
  for (int i = 0; i < spatial_rank(shape); ++i)
    check_dimension(call, x, window, static_cast<std::size_t>(i));
}

}  // namespace hybrid_trainer::kernels
