#pragma once

#include <span>
#include <vector>

#include "hybrid_trainer/core/random.h"

namespace hybrid_trainer {

/// Weight of each frequency k · 40 Hz in each band: (mels, 201). Triangles of equal area on Slaney's
/// mel scale, which is linear up to 1 kHz and logarithmic above.
std::vector<double> mel_filters(std::int64_t mels);

/// Samples from one frame of features to the next: 10 ms.
inline constexpr std::int64_t kFrameSamples = 160;
/// Frames of the 30 s that Whisper hears at once.
inline constexpr std::int64_t kWhisperFrames = 3000;

/// Whisper's features of sound of 16,000 samples a second: for each frame the logarithms of the power
/// in bands of the mel scale up to 8 kHz, as WhisperFeatureExtractor of transformers has them. A frame
/// sees 400 samples under a Hann window; the sound is mirrored at its ends. Powers below 1e-8 of the
/// largest count as that.
class LogMel {
 public:
  /// With 80 bands, or 128 of Whisper large-v3.
  explicit LogMel(std::int64_t mels = 80);
  std::int64_t mels() const { return mels_; }

  /// Features (frames, mels) of the samples, which are followed by silence or cut at the end so that
  /// there are frames · 160 of them. At least 2 frames.
  std::vector<float> of(std::span<const float> samples, std::int64_t frames = kWhisperFrames) const;
  /// Features (samples / 160, mels) of all samples, at least 201, without silence behind them.
  std::vector<float> of_all(std::span<const float> samples) const;

 private:
  struct Filter {
    std::int64_t first = 0;         // bin
    std::vector<double> weights{};  // of this bin and those behind it
  };
  std::vector<float> features(std::span<const float> samples, std::int64_t length) const;

  std::int64_t mels_;
  std::vector<Filter> filters_;
};

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
