#pragma once

#include "hybrid_trainer/kernels/window.h"

namespace hybrid_trainer::kernels {

/// A window over x as three dimensions of space: those that x lacks come before its own and have one
/// place. Plain numbers, which a device's kernels take too.
struct SpatialWindow {
  std::int64_t batch = 0, channels = 0;  // of x
  std::int64_t in[3] = {1, 1, 1}, out[3] = {1, 1, 1};
  std::int64_t kernel[3] = {1, 1, 1}, stride[3] = {1, 1, 1}, padding[3] = {0, 0, 0},
               dilation[3] = {1, 1, 1};

  SpatialWindow(const Shape& x, const Window& window) : batch(x[0]), channels(x[x.rank() - 1]) {
    const int rank = spatial_rank(x);
    for (int i = 0; i < rank; ++i) {
      const auto of = static_cast<std::size_t>(i);
      const int to = 3 - rank + i;
      in[to] = x[i + 1];
      out[to] = window.outputs(of, x[i + 1]);
      kernel[to] = window.kernel[of];
      stride[to] = window.stride[of];
      padding[to] = window.padding[of];
      dilation[to] = window.dilation[of];
    }
  }
  constexpr std::int64_t inputs() const { return in[0] * in[1] * in[2]; }  // places of an example
  constexpr std::int64_t outputs() const {
    return out[0] * out[1] * out[2];
  }  // windows of an example
  constexpr std::int64_t taps() const { return kernel[0] * kernel[1] * kernel[2]; }
  /// Whether each window reads one place, and each place has one window.
  bool is_pointwise() const {
    for (int i = 0; i < 3; ++i)
      if (kernel[i] != 1 || stride[i] != 1 || padding[i] != 0) return false;
    return true;
  }
};

}  // namespace hybrid_trainer::kernels
