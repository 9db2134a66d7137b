#include <algorithm>
#include <array>
#include <cmath>
#include <numbers>
#include <numeric>

#include "hybrid_trainer/core/error.h"
#include "src/data/audio/sound.h"

namespace hybrid_trainer {

namespace {

constexpr double kZeroCrossings = 64;
constexpr double kRolloff = 0.95;   // -6 dB point of the filter, relative to half the lower rate
constexpr double kKaiserBeta = 10;  // 100 dB
constexpr std::int64_t kMaxTaps = 8 << 20;
constexpr std::int64_t kSums = 8;

/// Returns the modified Bessel function of the first kind, order 0.
double bessel_0(double x) {
  double sum = 1, term = 1;
  for (int k = 1; term > sum * 1e-17; ++k) {
    term *= x * x / (4.0 * k * k);
    sum += term;
  }
  return sum;
}

double kaiser(double place) {
  return std::abs(place) < 1 ? bessel_0(kKaiserBeta * std::sqrt(1 - place * place)) : 0;
}

double sound_sinc(double x) {
  return x == 0 ? 1 : std::sin(std::numbers::pi * x) / (std::numbers::pi * x);
}

/// Sums in an order that does not depend on the machine.
float sum_of_products(const float* x, const float* taps, std::int64_t count) {
  std::array<float, kSums> sums{};
  for (std::int64_t k = 0; k < count; k += kSums)
    for (std::int64_t i = 0; i < kSums; ++i)
      sums[static_cast<std::size_t>(i)] += x[k + i] * taps[k + i];
  return ((sums[0] + sums[4]) + (sums[1] + sums[5])) + ((sums[2] + sums[6]) + (sums[3] + sums[7]));
}

}  // namespace

Resampling::Resampling(std::int64_t from, std::int64_t to) : from_(from), to_(to) {
  require(from > 0 && to > 0, "sample rates must be positive");
  const std::int64_t divisor = std::gcd(from, to);
  from_ /= divisor;
  to_ /= divisor;
  if (from_ == to_) return;
  const double lower = std::min(1.0, static_cast<double>(to_) / static_cast<double>(from_));
  cutoff_ = kRolloff * lower;
  half_ = static_cast<std::int64_t>(std::ceil(kZeroCrossings / lower));
  taps_ = (2 * half_ + kSums - 1) / kSums * kSums;
  if (to_ * taps_ > kMaxTaps)
    throw DataError(concat("cannot resample ", from, " Hz to ", to, " Hz: the filter would have ",
                           to_ * taps_, " coefficients, want at most ", kMaxTaps,
                           "; resample it first: ffmpeg -i IN.wav -ar ", to, " OUT.wav"));
  filter_.resize(static_cast<std::size_t>(to_ * taps_));
  for (std::int64_t phase = 0; phase < to_; ++phase)
    fill_taps(phase, &filter_[static_cast<std::size_t>(phase * taps_)]);
}

/// Computes the taps of one phase. Its output samples are phase/to of an input interval after input
/// `half - 1` of their 2 · half inputs.
void Resampling::fill_taps(std::int64_t phase, float* taps) const {
  const double place = static_cast<double>(phase) / static_cast<double>(to_);
  double sum = 0;
  std::vector<double> exact(static_cast<std::size_t>(2 * half_));
  for (std::int64_t k = 0; k < 2 * half_; ++k) {
    const double distance = static_cast<double>(k - half_ + 1) - place;
    const double tap =
        sound_sinc(cutoff_ * distance) * kaiser(distance / static_cast<double>(half_));
    sum += exact[static_cast<std::size_t>(k)] = tap;
  }
  for (std::int64_t k = 0; k < 2 * half_; ++k)
    taps[k] = static_cast<float>(exact[static_cast<std::size_t>(k)] / sum);
  std::fill(taps + 2 * half_, taps + taps_, 0.0f);
}

std::vector<float> Resampling::of(std::span<const float> samples) const {
  if (from_ == to_) return {samples.begin(), samples.end()};
  const auto count = static_cast<std::int64_t>(samples.size());
  std::vector<float> padded(static_cast<std::size_t>(count + 2 * half_ + taps_));
  std::ranges::copy(samples, padded.begin() + half_ - 1);
  std::vector<float> result(static_cast<std::size_t>((count * to_ + from_ - 1) / from_));
  for (std::int64_t i = 0; i < std::ssize(result); ++i) {
    const std::int64_t first = i * from_ / to_, phase = i * from_ % to_;
    result[static_cast<std::size_t>(i)] =
        sum_of_products(&padded[static_cast<std::size_t>(first)],
                        &filter_[static_cast<std::size_t>(phase * taps_)], taps_);
  }
  return result;
}

std::vector<float> SpeechReader::read(const FilePart& path) {
  Sound sound = read_wav(path);
  if (sound.rate == kSpeechRate) return std::move(sound.samples);
  constexpr std::size_t kMaxFilters = 4;  // up to 32 MB each
  if (filters_.size() == kMaxFilters && !filters_.contains(sound.rate)) filters_.clear();
  try {
    return filters_.try_emplace(sound.rate, sound.rate, kSpeechRate)
        .first->second.of(sound.samples);
  } catch (const DataError& error) {
    throw DataError(concat(path.native(), ": ", error.what()));
  }
}

}  // namespace hybrid_trainer
