#pragma once

#include <cstdint>
#include <map>
#include <span>
#include <vector>

#include "hybrid_trainer/files/input_file.h"

namespace hybrid_trainer {

/// Sample rate of all sound for models, in samples per second.
inline constexpr std::int64_t kSpeechRate = 16000;

/// Sound of one channel; full scale is -1 to 1.
struct Sound {
  std::vector<float> samples{};
  std::int64_t rate = kSpeechRate;  // samples per second
  double seconds() const { return static_cast<double>(samples.size()) / static_cast<double>(rate); }
};

enum class WavSamples { kUnsigned8, kInteger16, kInteger24, kInteger32, kFloat32, kFloat64 };
std::size_t bytes_of(WavSamples samples);
inline bool is_floating(WavSamples samples) { return samples >= WavSamples::kFloat32; }

struct WavForm {
  WavSamples samples = WavSamples::kInteger16;
  std::int64_t rate = 0;  // frames per second
  std::int64_t channels = 0;
  std::int64_t frames = 0;  // samples per channel
  std::size_t offset = 0;   // bytes before the first sample
  double seconds() const { return static_cast<double>(frames) / static_cast<double>(rate); }
};

/// Reads the header of an uncompressed WAV file (RIFF or RF64). Accepts chunks in any order. If the
/// header leaves the size open, as ffmpeg does when it writes to a pipe, the samples extend to the
/// end of the file. Throws DataError if the file is of another kind, compressed, truncated or
/// empty, or if its header is invalid. Also throws MissingInput and IoError.
WavForm read_wav_form(const FilePart& path);

/// Reads a WAV file as the mean of its channels. Throws like read_wav_form. Also throws DataError
/// if a sample is not finite.
Sound read_wav(const FilePart& path);

/// Resamples sound with a sinc filter under a Kaiser window, 64 zero crossings to each side.
/// Preserves frequencies up to 0.9 of half the lower rate, and attenuates frequencies above half
/// the lower rate by at least 80 dB. Assumes silence before and after the sound.
class Resampling {
 public:
  /// Rates are in samples per second, both positive. Throws DataError if their ratio needs a filter
  /// of more than 8 million numbers, for example 96,001 to 16,000.
  Resampling(std::int64_t from, std::int64_t to);
  /// Resamples n samples to ceil(n · to / from). Returns them unchanged if the rates are equal.
  std::vector<float> of(std::span<const float> samples) const;

 private:
  void fill_taps(std::int64_t phase, float* taps) const;

  std::int64_t from_, to_;     // divided by their greatest common divisor
  double cutoff_ = 1;          // cutoff frequency divided by half the old rate
  std::int64_t half_ = 0;      // input samples to each side of an output sample
  std::int64_t taps_ = 0;      // taps per phase, rounded up for vectorized loops
  std::vector<float> filter_;  // (to, taps)
};

/// Reads WAV files and resamples them to 16 kHz. Caches the filters. Not thread-safe.
class SpeechReader {
 public:
  /// Returns the resampled sound of a file. Throws like read_wav.
  std::vector<float> read(const FilePart& path);

 private:
  std::map<std::int64_t, Resampling> filters_;  // filters by the rate of the file
};

}  // namespace hybrid_trainer
