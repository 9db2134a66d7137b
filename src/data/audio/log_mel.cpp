#include "src/data/audio/log_mel.h"

#include <algorithm>
#include <cmath>
#include <numbers>

#include "hybrid_trainer/core/error.h"

namespace hybrid_trainer {

namespace {

/// Computes power spectra of windows of 400 samples. One Fourier transform processes two windows.
class FramePowers {
 public:
  static constexpr std::int64_t kWindow = 400, kBins = kWindow / 2 + 1;
  static constexpr std::int64_t kPairs = 4, kFrames = 2 * kPairs;  // computed together
  FramePowers();
  /// Loads the samples of window `frame`, from 0 to kFrames - 1, and applies a Hann window.
  void load(std::int64_t frame, const float* samples) {
    const auto pair = static_cast<std::size_t>(frame % kPairs);
    const auto part = frame < kPairs ? &Values::real : &Values::imaginary;
    for (std::size_t i = 0; i < kWindow; ++i) (values_[i].*part)[pair] = window_[i] * samples[i];
  }
  /// Transforms the loaded samples. Then power(k, frame) returns the power of bin k.
  void transform();
  double power(std::int64_t bin, std::int64_t frame) const {
    return powers_[static_cast<std::size_t>(bin * kFrames + frame)];
  }

 private:
  struct Values {  // one value of each pair
    std::array<double, kPairs> real{}, imaginary{};
  };
  struct Turn {
    double cosine = 1, sine = 0;
  };
  template <int kRadix>
  void stage(std::int64_t parts, std::int64_t stride, const std::vector<Turn>& turns);
  static void butterfly(std::array<Values, 4>& x);
  static void butterfly(std::array<Values, 5>& x);

  std::vector<double> window_, powers_;
  std::vector<Values> values_, other_;
  std::array<std::vector<Turn>, 4> turns_;  // per stage
};

constexpr std::array<int, 4> kRadices{4, 4, 5, 5};
const double kCosine1 = std::cos(0.4 * std::numbers::pi),
             kCosine2 = std::cos(0.8 * std::numbers::pi);
const double kSine1 = std::sin(0.4 * std::numbers::pi), kSine2 = std::sin(0.8 * std::numbers::pi);

FramePowers::FramePowers()
    : window_(kWindow), powers_(kBins * kFrames), values_(kWindow), other_(kWindow) {
  constexpr double kTurn = 2 * std::numbers::pi;
  for (std::size_t i = 0; i < kWindow; ++i)
    window_[i] = 0.5 - 0.5 * std::cos(kTurn * static_cast<double>(i) / kWindow);
  std::int64_t length = kWindow;
  for (std::size_t s = 0; s < kRadices.size(); ++s) {
    const std::int64_t radix = kRadices[s], parts = length / radix;
    for (std::int64_t p = 0; p < parts; ++p)
      for (std::int64_t k = 0; k < radix; ++k) {
        const double angle = kTurn * static_cast<double>(p * k) / static_cast<double>(length);
        turns_[s].push_back({std::cos(angle), -std::sin(angle)});
      }
    length = parts;
  }
}

void FramePowers::butterfly(std::array<Values, 4>& x) {
  for (std::size_t i = 0; i < kPairs; ++i) {
    const double sum_r = x[0].real[i] + x[2].real[i], sum_i = x[0].imaginary[i] + x[2].imaginary[i];
    const double gap_r = x[0].real[i] - x[2].real[i], gap_i = x[0].imaginary[i] - x[2].imaginary[i];
    const double odd_r = x[1].real[i] + x[3].real[i], odd_i = x[1].imaginary[i] + x[3].imaginary[i];
    const double turned_r = x[1].imaginary[i] - x[3].imaginary[i];
    const double turned_i = x[3].real[i] - x[1].real[i];
    x[0].real[i] = sum_r + odd_r, x[0].imaginary[i] = sum_i + odd_i;
    x[1].real[i] = gap_r + turned_r, x[1].imaginary[i] = gap_i + turned_i;
    x[2].real[i] = sum_r - odd_r, x[2].imaginary[i] = sum_i - odd_i;
    x[3].real[i] = gap_r - turned_r, x[3].imaginary[i] = gap_i - turned_i;
  }
}

void FramePowers::butterfly(std::array<Values, 5>& x) {
  const double c1 = kCosine1, c2 = kCosine2, s1 = kSine1, s2 = kSine2;
  for (std::size_t i = 0; i < kPairs; ++i) {
    const double a_r = x[1].real[i] + x[4].real[i], a_i = x[1].imaginary[i] + x[4].imaginary[i];
    const double b_r = x[2].real[i] + x[3].real[i], b_i = x[2].imaginary[i] + x[3].imaginary[i];
    const double c_r = x[1].real[i] - x[4].real[i], c_i = x[1].imaginary[i] - x[4].imaginary[i];
    const double d_r = x[2].real[i] - x[3].real[i], d_i = x[2].imaginary[i] - x[3].imaginary[i];
    const double x_r = x[0].real[i], x_i = x[0].imaginary[i];
    const double even1_r = x_r + c1 * a_r + c2 * b_r, even1_i = x_i + c1 * a_i + c2 * b_i;
    const double even2_r = x_r + c2 * a_r + c1 * b_r, even2_i = x_i + c2 * a_i + c1 * b_i;
    const double odd1_r = s1 * c_r + s2 * d_r, odd1_i = s1 * c_i + s2 * d_i;
    const double odd2_r = s2 * c_r - s1 * d_r, odd2_i = s2 * c_i - s1 * d_i;
    x[0].real[i] = x_r + a_r + b_r, x[0].imaginary[i] = x_i + a_i + b_i;
    x[1].real[i] = even1_r + odd1_i, x[1].imaginary[i] = even1_i - odd1_r;
    x[2].real[i] = even2_r + odd2_i, x[2].imaginary[i] = even2_i - odd2_r;
    x[3].real[i] = even2_r - odd2_i, x[3].imaginary[i] = even2_i + odd2_r;
    x[4].real[i] = even1_r - odd1_i, x[4].imaginary[i] = even1_i + odd1_r;
  }
}

/// Computes one stage of Stockham's algorithm, which needs no digit reversal.
template <int kRadix>
void FramePowers::stage(std::int64_t parts, std::int64_t stride, const std::vector<Turn>& turns) {
  std::array<Values, std::size_t{kRadix}> x;
  for (std::int64_t p = 0; p < parts; ++p) {
    const Turn* turn = &turns[static_cast<std::size_t>(p * kRadix)];
    for (std::int64_t q = 0; q < stride; ++q) {
      for (int k = 0; k < kRadix; ++k)
        x[static_cast<std::size_t>(k)] =
            values_[static_cast<std::size_t>(q + stride * (p + k * parts))];
      butterfly(x);
      for (int k = 0; k < kRadix; ++k) {
        const Values& from = x[static_cast<std::size_t>(k)];
        Values& to = other_[static_cast<std::size_t>(q + stride * (kRadix * p + k))];
        for (std::size_t i = 0; i < kPairs; ++i) {
          to.real[i] = from.real[i] * turn[k].cosine - from.imaginary[i] * turn[k].sine;
          to.imaginary[i] = from.real[i] * turn[k].sine + from.imaginary[i] * turn[k].cosine;
        }
      }
    }
  }
  std::swap(values_, other_);
}

void FramePowers::transform() {
  stage<4>(100, 1, turns_[0]);
  stage<4>(25, 4, turns_[1]);
  stage<5>(5, 16, turns_[2]);
  stage<5>(1, 80, turns_[3]);
  // The spectra of a pair's two windows are the even and the odd part of the result.
  for (std::size_t k = 0; k < kBins; ++k) {
    const Values& x = values_[k];
    const Values& y = values_[(kWindow - k) % kWindow];
    for (std::size_t i = 0; i < kPairs; ++i) {
      const double a_r = x.real[i] + y.real[i], a_i = x.imaginary[i] - y.imaginary[i];
      const double b_r = x.imaginary[i] + y.imaginary[i], b_i = y.real[i] - x.real[i];
      powers_[k * kFrames + i] = 0.25 * (a_r * a_r + a_i * a_i);
      powers_[k * kFrames + kPairs + i] = 0.25 * (b_r * b_r + b_i * b_i);
    }
  }
}

constexpr double kMaxFrequency = 8000;
constexpr double kLinearUpTo = 1000, kMelsUpToThere = 15, kMelsOfLinear = 3.0 / 200;
const double kMelsOfLogarithm = 27 / std::log(6.4);

double mels_of(double frequency) {
  if (frequency < kLinearUpTo) return kMelsOfLinear * frequency;
  return kMelsUpToThere + std::log(frequency / kLinearUpTo) * kMelsOfLogarithm;
}

double frequency_of(double mels) {
  if (mels < kMelsUpToThere) return mels / kMelsOfLinear;
  return kLinearUpTo * std::exp((mels - kMelsUpToThere) / kMelsOfLogarithm);
}

constexpr double kMinPower = 1e-10;
constexpr float kSpan = 8;  // powers are at least 10^-8 of the largest

/// Sound followed by silence, mirrored at both ends.
class MirroredSound {
 public:
  MirroredSound(std::span<const float> samples, std::int64_t length)
      : samples_(samples.first(std::min(samples.size(), static_cast<std::size_t>(length)))),
        length_(length) {}

  void copy_window(std::int64_t frame, float* to) const {
    const std::int64_t first = first_of(frame), last = first + FramePowers::kWindow;
    if (first >= 0 && last <= std::ssize(samples_)) {
      std::copy_n(samples_.begin() + first, FramePowers::kWindow, to);
      return;
    }
    for (std::int64_t i = first; i < last; ++i) *to++ = at(i);
  }
  bool is_silent_from(std::int64_t frame) const {
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

/// Index of a random number of the key. random_permuted uses only smaller indices.
constexpr std::uint64_t kRoundingNumber = std::uint64_t{1} << 62;
constexpr std::uint64_t kOtherAxis = 0x9E3779B97F4A7C15;

}  // namespace

std::vector<double> mel_filters(std::int64_t mels) {
  require(mels > 0, "log-mel features need at least one band");
  constexpr std::int64_t bins = FramePowers::kBins;
  const double highest = mels_of(kMaxFrequency);
  const auto corner = [&](std::int64_t i) {
    return frequency_of(highest * static_cast<double>(i) / static_cast<double>(mels + 1));
  };
  std::vector<double> filters(static_cast<std::size_t>(mels * bins));
  for (std::int64_t m = 0; m < mels; ++m) {
    const double low = corner(m), middle = corner(m + 1), high = corner(m + 2);
    for (std::int64_t k = 0; k < bins; ++k) {
      const double frequency = kMaxFrequency * static_cast<double>(k) / (bins - 1);
      const double rising = (frequency - low) / (middle - low);
      const double falling = (high - frequency) / (high - middle);
      filters[static_cast<std::size_t>(m * bins + k)] =
          std::max(0.0, std::min(rising, falling)) * 2 / (high - low);
    }
  }
  return filters;
}

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
                              static_cast<float>(std::log10(kMinPower)));
  FramePowers powers;
  std::array<float, FramePowers::kWindow> window;
  for (std::int64_t first = 0; first < frames && !sound.is_silent_from(first); first += at_once) {
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
        features[static_cast<std::size_t>((first + i) * mels_ + m)] =
            static_cast<float>(std::log10(std::max(sums[static_cast<std::size_t>(i)], kMinPower)));
    }
  }
  const float least = *std::ranges::max_element(features) - kSpan;
  for (float& value : features) value = (std::max(value, least) + 4) / 4;
  return features;
}

std::vector<std::int64_t> mask_starts(std::int64_t axis_length, const AxisMasks& masks,
                                      const RandomKey& key) {
  require(masks.length > 0, "a mask must have at least one position");
  if (masks.share <= 0 || masks.length > axis_length) return {};
  // Rounds the number of masks up or down at random, so that the share is exact on average.
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
