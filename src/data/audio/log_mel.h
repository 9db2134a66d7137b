#pragma once

#include <span>
#include <vector>

#include "hybrid_trainer/core/random.h"

namespace hybrid_trainer {

/// Returns the weight of each frequency k · 40 Hz in each band: (mels, 201). Bands are triangles of
/// equal area on Slaney's mel scale, which is linear up to 1 kHz and logarithmic above.
std::vector<double> mel_filters(std::int64_t mels);

/// Hop from one frame of features to the next, in samples: 10 ms.
inline constexpr std::int64_t kFrameSamples = 160;
/// Number of frames in Whisper's input of 30 s.
inline constexpr std::int64_t kWhisperFrames = 3000;

/// Computes Whisper's features from sound at 16,000 samples per second, like
/// WhisperFeatureExtractor of transformers: the logarithms of the power in mel bands up to 8 kHz
/// for each frame. A frame covers 400 samples under a Hann window. The sound is mirrored at its
/// ends. Powers are at least 1e-8 of the largest power.
class LogMel {
 public:
  /// `mels`: 80 bands, or 128 for Whisper large-v3.
  explicit LogMel(std::int64_t mels = 80);
  std::int64_t mels() const { return mels_; }

  /// Returns features (frames, mels) of samples padded or truncated to frames · 160; frames ≥ 2.
  std::vector<float> of(std::span<const float> samples, std::int64_t frames = kWhisperFrames) const;
  /// Returns features (n / 160, mels) of all n samples, without padding; n must be at least 201.
  std::vector<float> of_all(std::span<const float> samples) const;

 private:
  struct Filter {
    std::int64_t first = 0;         // index of the first bin
    std::vector<double> weights{};  // weights of this bin and of the following bins
  };
  std::vector<float> features(std::span<const float> samples, std::int64_t length) const;

  std::int64_t mels_;
  std::vector<Filter> filters_;
};

struct AxisMasks {
  double share = 0;          // share of the axis that the masks would cover if they did not overlap
  std::int64_t length = 10;  // length of one mask
  std::int64_t at_least = 0;
};

/// SpecAugment masks, with the parameters of Whisper's config.json (mask_time_prob and so on).
struct FeatureMasks {
  AxisMasks frames{.share = 0.05, .length = 10, .at_least = 2};  // masks of frames, over all bands
  AxisMasks mels{};                                              // masks of bands, over all frames
};

/// Returns the starts of the masks, distinct and distributed as in transformers; may be empty.
std::vector<std::int64_t> mask_starts(std::int64_t axis_length, const AxisMasks& masks,
                                      const RandomKey& key);

/// Sets the masked elements of `features` (frames, mels) to 0. The key determines the masks: pass
/// the run's seed, the epoch as `step` and the example as `tensor`.
void mask_features(std::span<float> features, std::int64_t mels, const FeatureMasks& masks,
                   const RandomKey& key);

}  // namespace hybrid_trainer
