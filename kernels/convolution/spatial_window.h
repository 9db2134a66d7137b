#pragma once

#include <cstdint>

#include "hybrid_trainer/kernels/convolution.h"

namespace hybrid_trainer::kernels {

/// A window over x in three spatial dimensions. If x has fewer spatial dimensions, the leading
/// dimensions have size 1. This is a plain struct, so that it can be passed to device kernels.
struct SpatialWindow {
  std::int64_t batch = 0, channels = 0;  // sizes of x
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
  /// Returns the number of input positions of an example.
  constexpr std::int64_t inputs() const { return in[0] * in[1] * in[2]; }
  constexpr std::int64_t outputs() const {
    return out[0] * out[1] * out[2];
  }  // number of windows of an example
  constexpr std::int64_t taps() const { return kernel[0] * kernel[1] * kernel[2]; }
  /// Returns whether each window reads one place, and each place is read by one window.
  bool is_pointwise() const {
    for (int i = 0; i < 3; ++i)
      if (kernel[i] != 1 || stride[i] != 1 || padding[i] != 0) return false;
    return true;
  }
};

// Used by every backend: constexpr functions also compile as device code.

struct Place {
  std::int64_t at[3];
};
constexpr Place spatial_place(std::int64_t index, const std::int64_t (&sizes)[3]) {
  return {{index / (sizes[1] * sizes[2]), index / sizes[2] % sizes[1], index % sizes[2]}};
}

/// Call visit(tap, connected place) for a dimension's taps that connect a window and a place.
template <class Visit>
constexpr void for_taps_of_window(const SpatialWindow& of, int i, std::int64_t window,
                                  const Visit& visit) {
  for (std::int64_t tap = 0; tap < of.kernel[i]; ++tap) {
    const std::int64_t place = window * of.stride[i] - of.padding[i] + tap * of.dilation[i];
    if (place >= 0 && place < of.in[i]) visit(tap, place);
  }
}
template <class Visit>
constexpr void for_taps_of_place(const SpatialWindow& of, int i, std::int64_t place,
                                 const Visit& visit) {
  for (std::int64_t tap = 0; tap < of.kernel[i]; ++tap) {
    const std::int64_t distance = place + of.padding[i] - tap * of.dilation[i];
    if (distance < 0 || distance % of.stride[i] != 0) continue;
    if (distance / of.stride[i] < of.out[i]) visit(tap, distance / of.stride[i]);
  }
}

/// Calls visit(tap index, index of the connected place or window) in a fixed order. If kBack, `at`
/// is a place, and the windows that read it are visited.
template <bool kBack, class Visit>
constexpr void for_joined(const SpatialWindow& of, const Place& at, const Visit& visit) {
  const auto along = [&](int i, const auto& then) {
    if constexpr (kBack) {
      for_taps_of_place(of, i, at.at[i], then);
    } else {
      for_taps_of_window(of, i, at.at[i], then);
    }
  };
  const std::int64_t* const sizes = kBack ? of.out : of.in;
  along(0, [&](std::int64_t tap0, std::int64_t place0) {
    along(1, [&](std::int64_t tap1, std::int64_t place1) {
      along(2, [&](std::int64_t tap2, std::int64_t place2) {
        visit((tap0 * of.kernel[1] + tap1) * of.kernel[2] + tap2,
              (place0 * sizes[1] + place1) * sizes[2] + place2);
      });
    });
  });
}

/// Sizes of an upsampling in three dimensions; missing leading ones have size 1.
struct UpsampledSizes {
  std::int64_t batch, channels;
  std::int64_t in[3] = {1, 1, 1}, factor[3] = {1, 1, 1};
  bool linear;

  UpsampledSizes(const Shape& x, const SpatialSizes& factors, Interpolation interpolation)
      : batch(x[0]), channels(x[x.rank() - 1]), linear(interpolation == Interpolation::kLinear) {
    const int rank = spatial_rank(x);
    for (int i = 0; i < rank; ++i) {
      in[3 - rank + i] = x[i + 1];
      factor[3 - rank + i] = factors[static_cast<std::size_t>(i)];
    }
  }
  constexpr std::int64_t out(int i) const { return in[i] * factor[i]; }
  constexpr std::int64_t inputs() const { return in[0] * in[1] * in[2]; }
  constexpr std::int64_t outputs() const { return out(0) * out(1) * out(2); }
};

/// The two places of x in one dimension from which a place of y is interpolated, and their weights.
struct UpsampledPlace {
  std::int64_t low, high;
  float share_low, share_high;
};

constexpr UpsampledPlace upsampled_place(const UpsampledSizes& of, int i, std::int64_t at) {
  const std::int64_t factor = of.factor[i];
  if (!of.linear || factor == 1) return {at / factor, at / factor, 1.0f, 0.0f};
  // Counts in units of half a place of y: the center of place `at` of y is at 2·at + 1, and the
  // center of the first place of x is at `factor`.
  const std::int64_t halves = 2 * at + 1 - factor;
  if (halves <= 0) return {0, 0, 1.0f, 0.0f};
  const std::int64_t low = halves / (2 * factor);
  const float share = static_cast<float>(halves % (2 * factor)) / static_cast<float>(2 * factor);
  const std::int64_t high = low + 1 < of.in[i] ? low + 1 : low;
  return {low, high, 1.0f - share, share};
}

/// Range [begin, end) of the places of y along a dimension that may use a given place of x.
struct UpsampledReach {
  std::int64_t begin, end;
};
constexpr UpsampledReach upsampled_reach(const UpsampledSizes& of, int i, std::int64_t at) {
  const std::int64_t factor = of.factor[i];
  if (!of.linear) return {at * factor, (at + 1) * factor};
  const std::int64_t begin = (at - 1) * factor, end = (at + 2) * factor, most = of.out(i);
  return {begin > 0 ? begin : 0, end < most ? end : most};
}

/// Returns the weight of a place of x in the interpolation of a place of y.
constexpr float upsampled_share(const UpsampledSizes& of, int i, std::int64_t of_x,
                                std::int64_t of_y) {
  const UpsampledPlace place = upsampled_place(of, i, of_y);
  return (place.low == of_x ? place.share_low : 0.0f) +
         (place.high == of_x ? place.share_high : 0.0f);
}

}  // namespace hybrid_trainer::kernels
