#pragma once

#include <cstdint>
#include <span>
#include <vector>

#include "hybrid_trainer/core/random.h"

namespace hybrid_trainer {

/// Masks along one axis of features.
struct AxisMasks {
  double share = 0;          // of the axis; masks may overlap, so less of it is masked
  std::int64_t length = 10;  // places of one mask
  std::int64_t at_least = 0;
};

/// Masks of SpecAugment, by the numbers of Whisper's config.json (mask_time_prob and so on).
struct FeatureMasks {
  AxisMasks frames{.share = 0.05, .length = 10, .at_least = 2};  // over all bands
  AxisMasks mels{};                                              // over all frames
};

/// Where the masks of an axis begin, no two at one place, distributed as by transformers. None with
/// share 0, or where a mask is longer than the axis.
std::vector<std::int64_t> mask_starts(std::int64_t axis_length, const AxisMasks& masks,
                                      const RandomKey& key);

/// Sets what the masks cover to 0 in features (frames, mels). The same key masks the same places:
/// give the run's seed, the epoch as `step` and the example as `tensor`.
void mask_features(std::span<float> features, std::int64_t mels, const FeatureMasks& masks,
                   const RandomKey& key);

}  // namespace hybrid_trainer
