#pragma once

#include <cstdint>

#include "hybrid_trainer/kernels/upsampling.h"

namespace hybrid_trainer::kernels {

// For every backend: constexpr functions also compile as device code.

/// Sizes of an upsampling in three dimensions, those that are not there first and of one place.
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

/// The two places of one dimension that a place of y is made of, and their shares.
struct UpsampledPlace {
  std::int64_t low, high;
  float share_low, share_high;
};

constexpr UpsampledPlace upsampled_place(const UpsampledSizes& of, int i, std::int64_t at) {
  const std::int64_t factor = of.factor[i];
  if (!of.linear || factor == 1) return {at / factor, at / factor, 1.0f, 0.0f};
  // In halves of a place of y: its middle is 2·at + 1, the first place's of x is factor.
  const std::int64_t halves = 2 * at + 1 - factor;
  if (halves <= 0) return {0, 0, 1.0f, 0.0f};
  const std::int64_t low = halves / (2 * factor);
  const float share = static_cast<float>(halves % (2 * factor)) / static_cast<float>(2 * factor);
  const std::int64_t high = low + 1 < of.in[i] ? low + 1 : low;
  return {low, high, 1.0f - share, share};
}

/// Places of y along a dimension that may be made of one of x: [begin, end).
struct UpsampledReach {
  std::int64_t begin, end;
};
constexpr UpsampledReach upsampled_reach(const UpsampledSizes& of, int i, std::int64_t at) {
  const std::int64_t factor = of.factor[i];
  if (!of.linear) return {at * factor, (at + 1) * factor};
  const std::int64_t begin = (at - 1) * factor, end = (at + 2) * factor, most = of.out(i);
  return {begin > 0 ? begin : 0, end < most ? end : most};
}

/// The share of a place of x in one of y.
constexpr float upsampled_share(const UpsampledSizes& of, int i, std::int64_t of_x,
                                std::int64_t of_y) {
  const UpsampledPlace place = upsampled_place(of, i, of_y);
  return (place.low == of_x ? place.share_low : 0.0f) +
         (place.high == of_x ? place.share_high : 0.0f);
}

}  // namespace hybrid_trainer::kernels
