#include "hybrid_trainer/kernels/convolution.h"

#include <algorithm>
#include <vector>

#include "kernels/backend.h"
#include "kernels/cpu/convolution_parts.h"
#include "kernels/cpu/sliding_product.h"

namespace hybrid_trainer::kernels::cpu {

// Defined in matmul.cpp.
decltype(kernels::linear_forward) linear_forward;
decltype(kernels::matmul) matmul;

namespace {

/// A window of one place by itself is a product of rows.
bool is_product(const SpatialWindow& window, std::int64_t groups) {
  return groups == 1 && window.is_pointwise();
}

/// Which channel is convolved alone, by taps of its own.
bool is_by_channel(const SpatialWindow& window, const Tensor& weight, std::int64_t groups) {
  return groups == window.channels && weight.size(0) == groups;
}

SlidingProduct sliding_of(const SpatialWindow& window, const Tensor& weight, std::int64_t groups) {
  SlidingProduct product{.dtype = weight.dtype(), .batch = window.batch, .groups = groups};
  std::copy_n(window.kernel, 3, product.kernel);
  return product;
}

/// Places of x that are `rest` more than a multiple of the stride: which taps reach them, from which
/// places of y on.
SlidingDimension reached_places(const SpatialWindow& window, int i, std::int64_t rest) {
  const std::int64_t stride = window.stride[i];
  SlidingDimension of{.places = window.out[i],
                      .windows = (window.in[i] - rest + stride - 1) / stride,
                      .taps = {},
                      .results = window.in[i],
                      .first = rest,
                      .spread = stride};
  for (std::int64_t tap = window.kernel[i] - 1; tap >= 0; --tap) {
    const std::int64_t distance = rest + window.padding[i] - tap * window.dilation[i];
    if (distance % stride == 0) of.taps.push_back({distance / stride, tap});
  }
  if (of.taps.empty()) return of;
  of.origin = of.taps.front().offset;
  for (SlidingTap& tap : of.taps) tap.offset -= of.origin;
  return of;
}

}  // namespace

void convolution_forward(const Tensor& y, const Tensor& x, const Tensor& weight, const Tensor& bias,
                         const Window& window, std::int64_t groups, const Stream& stream) {
  const SpatialWindow of(x.shape(), window);
  if (is_product(of, groups))
    return cpu::linear_forward(y.as_rows(), x.as_rows(), weight, bias, Tensor{}, stream);
  if (is_by_channel(of, weight, groups)) return convolve_channels(y, x, weight, bias, of, stream);
  SlidingProduct product = sliding_of(of, weight, groups);
  const std::int64_t columns = weight.size(1);
  product.inputs = of.channels / groups, product.outputs = weight.size(0) / groups;
  product.x = x.raw(), product.result = y.raw();
  product.bias = bias ? bias.data<float>() : nullptr;
  product.weight = {weight.raw(), product.outputs * columns, columns, product.inputs, 1};
  for (int i = 0; i < 3; ++i) {
    SlidingDimension& dimension = product.dimensions[static_cast<std::size_t>(i)];
    dimension = {.places = of.in[i],
                 .windows = of.out[i],
                 .step = of.stride[i],
                 .origin = -of.padding[i],
                 .taps = {},
                 .results = of.out[i]};
    for (std::int64_t tap = 0; tap < of.kernel[i]; ++tap)
      dimension.taps.push_back({tap * of.dilation[i], tap});
  }
  multiply_sliding({&product, 1}, stream);
}

void convolution_backward_input(const Tensor& dx, const Tensor& dy, const Tensor& weight,
                                const Window& window, std::int64_t groups, const Stream& stream) {
  const SpatialWindow of(dx.shape(), window);
  if (is_product(of, groups)) {
    return cpu::matmul(dx.as_rows(), dy.as_rows(), Transpose::kNo, weight, Transpose::kNo,
                       GradientMode::kOverwrite, stream);
  }
  if (is_by_channel(of, weight, groups))
    return convolve_channels_backward_input(dx, dy, weight, of, stream);
  SlidingProduct product = sliding_of(of, weight, groups);
  const std::int64_t columns = weight.size(1);
  product.inputs = weight.size(0) / groups, product.outputs = of.channels / groups;
  product.x = dy.raw(), product.result = dx.raw();
  product.weight = {weight.raw(), product.inputs * columns, 1, product.outputs, columns};
  // With a stride, places that differ in what remains of it are reached by other taps.
  const auto rests = [&](int i) { return std::min(of.stride[i], of.in[i]); };
  std::vector<SlidingProduct> products;
  for (std::int64_t first = 0; first < rests(0); ++first) {
    for (std::int64_t second = 0; second < rests(1); ++second) {
      for (std::int64_t third = 0; third < rests(2); ++third) {
        product.dimensions = {reached_places(of, 0, first), reached_places(of, 1, second),
                              reached_places(of, 2, third)};
        products.push_back(product);
      }
    }
  }
  multiply_sliding(products, stream);
}

void convolution_backward_weight(const Tensor& dweight, const Tensor& dy, const Tensor& x,
                                 const Window& window, std::int64_t groups, GradientMode mode,
                                 const Stream& stream) {
  const SpatialWindow of(x.shape(), window);
  if (is_product(of, groups)) {
    return cpu::matmul(dweight, dy.as_rows(), Transpose::kYes, x.as_rows(), Transpose::kNo, mode,
                       stream);
  }
  if (is_by_channel(of, dweight, groups))
    return convolve_channels_backward_weight(dweight, dy, x, of, mode, stream);
  convolve_backward_weight(dweight, dy, x, of, groups, mode, stream);
}

}  // namespace hybrid_trainer::kernels::cpu
