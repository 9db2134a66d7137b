#include "hybrid_trainer/audio/log_mel.h"

#include <algorithm>
#include <array>
#include <cmath>

#include "hybrid_trainer/core/error.h"
#include "src/audio/frame_powers.h"
#include "src/audio/mel_filters.h"

namespace hybrid_trainer {
namespace {

constexpr double kLeastPower = 1e-10;
constexpr float kSpan = 8;  // powers of ten below the largest

/// Sound with silence behind it, mirrored at both ends.
class MirroredSound {
 public:
  MirroredSound(std::span<const float> samples, std::int64_t length)
      : samples_(samples.first(std::min(samples.size(), static_cast<std::size_t>(length)))),
        length_(length) {}

  /// The samples around the middle of a frame.
  void copy_window(std::int64_t frame, float* to) const {
    const std::int64_t first = first_of(frame), last = first + FramePowers::kWindow;
    if (first >= 0 && last <= std::ssize(samples_)) {
      std::copy_n(samples_.begin() + first, FramePowers::kWindow, to);
      return;
    }
    for (std::int64_t i = first; i < last; ++i) *to++ = at(i);
  }
  bool is_silence_behind(std::int64_t frame) const {
    return first_of(frame) >= std::ssize(samples_) &&
           first_of(frame) + FramePowers::kWindow <= length_;
  }

 private:
  static std::int64_t first_of(std::int64_t frame) {
    return frame * kFrameSamples - FramePowers::kWindow / 2;
  }
  float at(std::int64_t i) const {
    if (i < 0) i = -i;
    if (i >= length_) i = 2 * length_ - 2 - i;
    return i < std::ssize(samples_) ? samples_[static_cast<std::size_t>(i)] : 0.0f;
  }

  std::span<const float> samples_;
  std::int64_t length_;
};

}  // namespace

LogMel::LogMel(std::int64_t mels) : mels_(mels) {
  const std::vector<double> weights = mel_filters(mels);
  for (std::int64_t m = 0; m < mels; ++m) {
    const auto begin = weights.begin() + m * FramePowers::kBins, end = begin + FramePowers::kBins;
    const auto is_used = [](double weight) { return weight > 0; };
    const auto first = std::find_if(begin, end, is_used);
    const auto last = std::find_if_not(first, end, is_used);
    filters_.push_back({first - begin, {first, last}});
  }
}

std::vector<float> LogMel::of(std::span<const float> samples, std::int64_t frames) const {
  return features(samples, frames * kFrameSamples);
}

std::vector<float> LogMel::of_all(std::span<const float> samples) const {
  return features(samples, std::ssize(samples));
}

std::vector<float> LogMel::features(std::span<const float> samples, std::int64_t length) const {
  require(length > FramePowers::kWindow / 2, "features need at least 201 samples");
  constexpr std::int64_t at_once = FramePowers::kFrames;
  const MirroredSound sound(samples, length);
  const std::int64_t frames = length / kFrameSamples;
  std::vector<float> features(static_cast<std::size_t>(frames * mels_),
                              static_cast<float>(std::log10(kLeastPower)));
  FramePowers powers;
  std::array<float, FramePowers::kWindow> window;
  for (std::int64_t first = 0; first < frames && !sound.is_silence_behind(first);
       first += at_once) {
    const std::int64_t count = std::min(at_once, frames - first);
    for (std::int64_t i = 0; i < count; ++i) {
      sound.copy_window(first + i, window.data());
      powers.load(i, window.data());
    }
    powers.transform();
    for (std::int64_t m = 0; m < mels_; ++m) {
      const Filter& filter = filters_[static_cast<std::size_t>(m)];
      std::array<double, at_once> sums{};
      for (std::size_t k = 0; k < filter.weights.size(); ++k)
        for (std::size_t i = 0; i < at_once; ++i)
          sums[i] += filter.weights[k] * powers.power(filter.first + static_cast<std::int64_t>(k),
                                                      static_cast<std::int64_t>(i));
      for (std::int64_t i = 0; i < count; ++i)
        features[static_cast<std::size_t>((first + i) * mels_ + m)] = static_cast<float>(
            std::log10(std::max(sums[static_cast<std::size_t>(i)], kLeastPower)));
    }
  }
  const float least = *std::ranges::max_element(features) - kSpan;
  for (float& value : features) value = (std::max(value, least) + 4) / 4;
  return features;
}

}  // namespace hybrid_trainer
