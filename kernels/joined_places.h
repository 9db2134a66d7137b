#pragma once

#include "kernels/spatial_window.h"

namespace hybrid_trainer::kernels {

// For every backend: constexpr functions also compile as device code.

/// A place of an example in three dimensions.
struct Place {
  std::int64_t at[3];
};
constexpr Place spatial_place(std::int64_t index, const std::int64_t (&sizes)[3]) {
  return {{index / (sizes[1] * sizes[2]), index / sizes[2] % sizes[1], index % sizes[2]}};
}

/// Taps of one dimension that join a window and a place: visit(tap, the other one's place).
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

/// Calls visit(tap of all, index of the place or window that it joins) in a fixed order; kBack: `at` is
/// a place, which windows read.
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

}  // namespace hybrid_trainer::kernels
