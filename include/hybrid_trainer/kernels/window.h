#pragma once

#include <array>

#include "hybrid_trainer/core/tensor.h"

namespace hybrid_trainer::kernels {

/// A number for each of up to three dimensions of space; those beyond a tensor's do not count.
using SpatialSizes = std::array<std::int64_t, 3>;

/// Windows that slide over the places of x (B, D1..Dn, C), n from 1 to 3.
struct Window {
  SpatialSizes kernel{1, 1, 1};    // places that a window reads
  SpatialSizes stride{1, 1, 1};    // places from one window to the next
  SpatialSizes padding{0, 0, 0};   // places outside x before the first one and after the last
  SpatialSizes dilation{1, 1, 1};  // places from one that a window reads to the next

  /// Places from the first to the last that a window reads.
  std::int64_t reach(std::size_t i) const { return (kernel[i] - 1) * dilation[i] + 1; }
  /// Places that a window reads, over the first n dimensions.
  std::int64_t taps(int n) const;
  /// Windows along dimension i of `size` places; 0 where none fits.
  std::int64_t outputs(std::size_t i, std::int64_t size) const;
};

/// Dimensions of space of a tensor (B, D1..Dn, C).
inline int spatial_rank(const Shape& x) { return x.rank() - 2; }
/// Places of an example: D1·…·Dn.
std::int64_t places_of(const Shape& x);
/// (B, O1..On, channels): a place for each window over x.
Shape window_outputs(const Shape& x, const Window& window, std::int64_t channels);

}  // namespace hybrid_trainer::kernels
