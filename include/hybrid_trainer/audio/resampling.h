#pragma once

#include <cstdint>
#include <span>
#include <vector>

namespace hybrid_trainer {

/// Changes the rate of sound by a sinc filter under a Kaiser window, 64 zero crossings to each side.
/// Frequencies up to 0.9 of half the lower rate stay as they are, those above half of it are at least
/// 80 dB down. Before and behind the sound is silence.
class Resampling {
 public:
  /// From and to a number of samples a second, both positive. Throws DataError if their ratio needs
  /// a filter of more than 8 million numbers, as 96,001 to 16,000 does.
  Resampling(std::int64_t from, std::int64_t to);
  /// ceil(n · to / from) samples. Of equal rates the samples themselves.
  std::vector<float> of(std::span<const float> samples) const;

 private:
  void fill_taps(std::int64_t phase, float* taps) const;

  std::int64_t from_, to_;     // without common divisors
  double cutoff_ = 1;          // as a share of the old rate's half
  std::int64_t half_ = 0;      // samples to each side that an output sample sees
  std::int64_t taps_ = 0;      // of one phase, rounded up for the loops
  std::vector<float> filter_;  // (to, taps)
};

}  // namespace hybrid_trainer
