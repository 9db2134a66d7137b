#include "kernels/generated/convolution.h"

#include "kernels/backend/dispatch.h"

namespace hybrid_trainer::kernels {

std::int64_t Window::taps(int n) const {
  std::int64_t count = 1;
  for (std::size_t i = 0; i < static_cast<std::size_t>(n); ++i) count *= kernel[i];
  return count;
}

std::int64_t Window::outputs(std::size_t i, std::int64_t size) const {
  const std::int64_t free = size + 2 * padding[i] - reach(i);
  return free < 0 ? 0 : free / stride[i] + 1;
}

std::int64_t places_of(const Shape& x) {
  std::int64_t places = 1;
  for (int i = 1; i < x.rank() - 1; ++i) places *= x[i];
  return places;
}

Shape window_outputs(const Shape& x, const Window& window, std::int64_t channels) {
  Shape shape{x[0]};
  for (int i = 0; i < spatial_rank(x); ++i)
    shape.append(window.outputs(static_cast<std::size_t>(i), x[i + 1]));
  shape.append(channels);
  return shape;
}

namespace {

void check_dimension(const KernelCall& call, const NamedTensor& x, const Window& window,
                     std::size_t i) {
  const std::int64_t size = x.tensor.size(static_cast<int>(i) + 1);
  const auto refuse = [&](const std::string& wanted) {
    throw_mismatch(call, "", x.name, " is ", x.tensor.shape().text(), ", dimension ", i + 1,
                   " has size ", size, "; the kernel is ", window.kernel[i], ", stride ",
                   window.stride[i], ", padding ", window.padding[i], ", dilation ",
                   window.dilation[i], "; want ", wanted);
  };
  if (window.kernel[i] < 1 || window.stride[i] < 1 || window.dilation[i] < 1)
    refuse("kernel, stride and dilation of at least 1");
  if (window.padding[i] < 0) refuse("a padding of at least 0");
  if (window.padding[i] >= window.reach(i) && window.padding[i] > 0)
    refuse(concat("a padding below ", window.reach(i),
                  ", so that each window reads at least one element of ", x.name));
  if (window.outputs(i, size) < 1)
    refuse(concat("a size of at least ", window.reach(i) - 2 * window.padding[i]));
}

/// Checks the dtype of x. Throws ShapeMismatch, which names the sizes, if x is empty or not (B,
/// D1..Dn, C) with n from 1 to 3, or if `window` does not fit or reads only padding.
void check_window(const KernelCall& call, const NamedTensor& x, const Window& window) {
  check_real(call, x);
  const Shape& shape = x.tensor.shape();
  if (shape.rank() < 3 || shape.rank() > 5 || shape.elements() == 0)
    throw_mismatch(call, x.name, " is ", shape.text(),
                   ", want (batch, one to three spatial dimensions, channels), each at least 1");
  for (int i = 0; i < spatial_rank(shape); ++i)
    check_dimension(call, x, window, static_cast<std::size_t>(i));
}

void check_convolution(const KernelCall& call, const NamedTensor& x, const NamedTensor& weight,
                       const NamedTensor& y, const Window& window, std::int64_t groups) {
  check_window(call, x, window);
  check_rank(call, weight, 2);
  const Shape& shape = x.tensor.shape();
  const std::int64_t channels = shape[shape.rank() - 1], outputs = weight.tensor.size(0),
                     taps = window.taps(spatial_rank(shape));
  if (groups < 1 || channels % groups != 0 || outputs % groups != 0)
    throw_mismatch(call, channels, " channels and ", outputs, " outputs in ", groups,
                   " groups; want a number of groups that divides both");
  check_shape(call, weight, {outputs, taps * (channels / groups)});
  check_shape(call, y, window_outputs(shape, window, outputs), x.tensor.dtype());
}

enum class Dilation { kOne, kAny };

void check_pooling(const KernelCall& call, const NamedTensor& x, const NamedTensor& y,
                   const Window& window, Dilation dilation) {
  check_window(call, x, window);
  const Shape& shape = x.tensor.shape();
  for (std::size_t i = 0; i < static_cast<std::size_t>(spatial_rank(shape)); ++i) {
    if (2 * window.padding[i] > window.kernel[i])
      throw_mismatch(call, "in dimension ", i + 1, " the padding is ", window.padding[i],
                     " and the kernel ", window.kernel[i],
                     "; want a padding of at most half the kernel");
    if (dilation == Dilation::kOne && window.dilation[i] != 1)
      throw_mismatch(call, "in dimension ", i + 1, " the dilation is ", window.dilation[i],
                     "; want 1");
  }
  check_shape(call, y, window_outputs(shape, window, shape[shape.rank() - 1]), x.tensor.dtype());
}

void check_places(const KernelCall& call, const Tensor& x, const Tensor& y, const Tensor& places) {
  check_shape(call, {"places", places}, y.shape(), DType::kI32);
  if (places_of(x.shape()) > std::int64_t{1} << 31)
    throw_mismatch(call, "an example of ", x.shape().text(),
                   " has more elements than 32 bits can index");
}

void check_upsampling(const KernelCall& call, const NamedTensor& x, const NamedTensor& y,
                      const SpatialSizes& factors) {
  check_window(call, x, {});
  const Shape& shape = x.tensor.shape();
  for (std::size_t i = 0; i < static_cast<std::size_t>(spatial_rank(shape)); ++i) {
    if (factors[i] < 1)
      throw_mismatch(call, "the factor of dimension ", i + 1, " is ", factors[i],
                     ", want at least 1");
  }
  check_shape(call, y, upsampled_shape(shape, factors), x.tensor.dtype());
}

}  // namespace

void convolution_forward(const Tensor& y, const Tensor& x, const Tensor& weight, const Tensor& bias,
                         const Window& window, std::int64_t groups, const Stream& stream) {
  const KernelCall call{"convolution_forward", stream, Work::kProduct};
  check_convolution(call, {"x", x}, {"weight", weight}, {"y", y}, window, groups);
  check_dtype(call, {"weight", weight}, x.dtype());
  if (bias) check_shape(call, {"bias", bias}, {weight.size(0)}, DType::kF32);
  dispatch_with_workspace<cpu::convolution_forward, cuda::convolution_forward>(
      call, y, x, weight, bias, window, groups);
}

void convolution_backward_input(const Tensor& dx, const Tensor& dy, const Tensor& weight,
                                const Window& window, std::int64_t groups, const Stream& stream) {
  const KernelCall call{"convolution_backward_input", stream, Work::kProduct};
  check_convolution(call, {"dx", dx}, {"weight", weight}, {"dy", dy}, window, groups);
  check_dtype(call, {"weight", weight}, dx.dtype());
  dispatch_with_workspace<cpu::convolution_backward_input, cuda::convolution_backward_input>(
      call, dx, dy, weight, window, groups);
}

void convolution_backward_weight(const Tensor& dweight, const Tensor& dy, const Tensor& x,
                                 const Window& window, std::int64_t groups, GradientMode mode,
                                 const Stream& stream) {
  const KernelCall call{"convolution_backward_weight", stream, Work::kProduct};
  check_convolution(call, {"x", x}, {"dweight", dweight}, {"dy", dy}, window, groups);
  check_dtype(call, {"dweight", dweight}, DType::kF32);
  dispatch_with_workspace<cpu::convolution_backward_weight, cuda::convolution_backward_weight>(
      call, dweight, dy, x, window, groups, mode);
}

void mean_pooling_forward(const Tensor& y, const Tensor& x, const Window& window, Divisor divisor,
                          const Stream& stream) {
  const KernelCall call{"mean_pooling_forward", stream, Work::kElementwise};
  check_pooling(call, {"x", x}, {"y", y}, window, Dilation::kOne);
  dispatch<cpu::mean_pooling_forward, cuda::mean_pooling_forward>(call, y, x, window, divisor);
}

void mean_pooling_backward(const Tensor& dx, const Tensor& dy, const Window& window,
                           Divisor divisor, const Stream& stream) {
  const KernelCall call{"mean_pooling_backward", stream, Work::kElementwise};
  check_pooling(call, {"dx", dx}, {"dy", dy}, window, Dilation::kOne);
  dispatch<cpu::mean_pooling_backward, cuda::mean_pooling_backward>(call, dx, dy, window, divisor);
}

void max_pooling_forward(const Tensor& y, const Tensor& places, const Tensor& x,
                         const Window& window, const Stream& stream) {
  const KernelCall call{"max_pooling_forward", stream, Work::kElementwise};
  check_pooling(call, {"x", x}, {"y", y}, window, Dilation::kAny);
  check_places(call, x, y, places);
  dispatch<cpu::max_pooling_forward, cuda::max_pooling_forward>(call, y, places, x, window);
}

void max_pooling_backward(const Tensor& dx, const Tensor& dy, const Tensor& places,
                          const Window& window, const Stream& stream) {
  const KernelCall call{"max_pooling_backward", stream, Work::kElementwise};
  check_pooling(call, {"dx", dx}, {"dy", dy}, window, Dilation::kAny);
  check_places(call, dx, dy, places);
  dispatch<cpu::max_pooling_backward, cuda::max_pooling_backward>(call, dx, dy, places, window);
}

Shape upsampled_shape(const Shape& x, const SpatialSizes& factors) {
  Shape shape{x[0]};
  for (int i = 0; i < spatial_rank(x); ++i)
    shape.append(x[i + 1] * factors[static_cast<std::size_t>(i)]);
  shape.append(x[x.rank() - 1]);
  return shape;
}

void upsampling_forward(const Tensor& y, const Tensor& x, const SpatialSizes& factors,
                        Interpolation interpolation, const Stream& stream) {
  const KernelCall call{"upsampling_forward", stream, Work::kElementwise};
  check_upsampling(call, {"x", x}, {"y", y}, factors);
  dispatch<cpu::upsampling_forward, cuda::upsampling_forward>(call, y, x, factors, interpolation);
}

void upsampling_backward(const Tensor& dx, const Tensor& dy, const SpatialSizes& factors,
                         Interpolation interpolation, const Stream& stream) {
  const KernelCall call{"upsampling_backward", stream, Work::kElementwise};
  check_upsampling(call, {"dx", dx}, {"dy", dy}, factors);
  dispatch<cpu::upsampling_backward, cuda::upsampling_backward>(call, dx, dy, factors,
                                                                interpolation);
}

}  // namespace hybrid_trainer::kernels
