#include "hybrid_trainer/audio/feature_masks.h"

#include <algorithm>

#include "hybrid_trainer/core/error.h"

namespace hybrid_trainer {
namespace {

/// A number of the key's sequence that random_permuted does not draw.
constexpr std::uint64_t kRoundingNumber = std::uint64_t{1} << 62;
constexpr std::uint64_t kOtherAxis = 0x9E3779B97F4A7C15;

}  // namespace

std::vector<std::int64_t> mask_starts(std::int64_t axis_length, const AxisMasks& masks,
                                      const RandomKey& key) {
  require(masks.length > 0, "a mask covers at least one place");
  if (masks.share <= 0 || masks.length > axis_length) return {};
  // The share is rounded up or down by chance, so that it holds on average.
  const double wanted =
      masks.share * static_cast<double>(axis_length) / static_cast<double>(masks.length);
  const std::int64_t places = axis_length - masks.length + 1;
  std::int64_t count =
      static_cast<std::int64_t>(wanted + to_unit_float(philox(key, kRoundingNumber)[0]));
  count = std::max(count, masks.at_least);
  count = std::min({count, axis_length / masks.length, places});
  std::vector<std::int64_t> starts;
  for (std::int64_t i = 0; i < count; ++i)
    starts.push_back(static_cast<std::int64_t>(
        random_permuted(key, static_cast<std::uint64_t>(i), static_cast<std::uint64_t>(places))));
  return starts;
}

void mask_features(std::span<float> features, std::int64_t mels, const FeatureMasks& masks,
                   const RandomKey& key) {
  const std::int64_t frames = std::ssize(features) / mels;
  for (const std::int64_t start : mask_starts(frames, masks.frames, key))
    std::fill_n(features.begin() + start * mels, masks.frames.length * mels, 0.0f);
  RandomKey of_mels = key;
  of_mels.seed ^= kOtherAxis;
  for (const std::int64_t start : mask_starts(mels, masks.mels, of_mels))
    for (std::int64_t frame = 0; frame < frames; ++frame)
      std::fill_n(features.begin() + frame * mels + start, masks.mels.length, 0.0f);
}

}  // namespace hybrid_trainer
