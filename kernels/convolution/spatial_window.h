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

/// Returns 1 over the number of a window's places, without those outside x unless `counts_all`.
constexpr float share_of(const SpatialWindow& of, const Place& window, bool counts_all) {
  std::int64_t places = 1;
  for (int i = 0; i < 3; ++i) {
    const std::int64_t begin = window.at[i] * of.stride[i] - of.padding[i];
    const std::int64_t end = begin + of.kernel[i];
    places *=
        counts_all ? of.kernel[i] : (end < of.in[i] ? end : of.in[i]) - (begin > 0 ? begin : 0);
  }
  return 1.0f / static_cast<float>(places);
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

/// Calls visit(share, index of the place of x) in a fixed order for the places of x from which place
/// `at` of y is interpolated.
template <class Visit>
constexpr void for_sources(const UpsampledSizes& of, std::int64_t at, const Visit& visit) {
  const UpsampledPlace p0 = upsampled_place(of, 0, at / (of.out(1) * of.out(2))),
                       p1 = upsampled_place(of, 1, at / of.out(2) % of.out(1)),
                       p2 = upsampled_place(of, 2, at % of.out(2));
  for (int corner = 0; corner < 8; ++corner) {
    const bool high0 = (corner & 4) != 0, high1 = (corner & 2) != 0, high2 = (corner & 1) != 0;
    const float share = (high0 ? p0.share_high : p0.share_low) *
                        (high1 ? p1.share_high : p1.share_low) *
                        (high2 ? p2.share_high : p2.share_low);
    if (share == 0.0f) continue;
    visit(share, ((high0 ? p0.high : p0.low) * of.in[1] + (high1 ? p1.high : p1.low)) * of.in[2] +
                     (high2 ? p2.high : p2.low));
  }
}

/// Calls visit(share, index of the place of y) in a fixed order for the places of y that are
/// interpolated from place `at` of x.
template <class Visit>
constexpr void for_targets(const UpsampledSizes& of, std::int64_t at, const Visit& visit) {
  const std::int64_t p0 = at / (of.in[1] * of.in[2]), p1 = at / of.in[2] % of.in[1],
                     p2 = at % of.in[2];
  const UpsampledReach reach0 = upsampled_reach(of, 0, p0), reach1 = upsampled_reach(of, 1, p1),
                       reach2 = upsampled_reach(of, 2, p2);
  for (std::int64_t i0 = reach0.begin; i0 < reach0.end; ++i0) {
    const float share0 = upsampled_share(of, 0, p0, i0);
    for (std::int64_t i1 = reach1.begin; share0 != 0 && i1 < reach1.end; ++i1) {
      const float share1 = share0 * upsampled_share(of, 1, p1, i1);
      for (std::int64_t i2 = reach2.begin; share1 != 0 && i2 < reach2.end; ++i2) {
        const float share = share1 * upsampled_share(of, 2, p2, i2);
        if (share != 0.0f) visit(share, (i0 * of.out(1) + i1) * of.out(2) + i2);
      }
    }
  }
}

}  // namespace hybrid_trainer::kernels
