#pragma once

#include <cstdint>
#include <span>
#include <vector>

namespace hybrid_trainer {

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

}  // namespace hybrid_trainer
