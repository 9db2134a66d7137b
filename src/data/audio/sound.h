#pragma once

#include <cstdint>
#include <map>
#include <span>
#include <vector>

#include "hybrid_trainer/files/input_file.h"

namespace hybrid_trainer {

/// Rate of all sound that a model hears, in samples a second.
inline constexpr std::int64_t kSpeechRate = 16000;

/// Sound of one channel; full scale is -1 to 1.
struct Sound {
  std::vector<float> samples{};
  std::int64_t rate = kSpeechRate;  // samples a second
  double seconds() const { return static_cast<double>(samples.size()) / static_cast<double>(rate); }
};

/// How one sample stands in a WAV file.
enum class WavSamples { kUnsigned8, kInteger16, kInteger24, kInteger32, kFloat32, kFloat64 };
std::size_t bytes_of(WavSamples samples);
inline bool is_floating(WavSamples samples) { return samples >= WavSamples::kFloat32; }

/// What the header of a WAV file says.
struct WavForm {
  WavSamples samples = WavSamples::kInteger16;
  std::int64_t rate = 0;  // frames a second
  std::int64_t channels = 0;
  std::int64_t frames = 0;  // samples of each channel
  std::size_t offset = 0;   // bytes before the first sample
  double seconds() const { return static_cast<double>(frames) / static_cast<double>(rate); }
};

/// Reads the header of a WAV file (RIFF or RF64) with uncompressed samples. Chunks stand in any
/// order, and unknown ones are skipped. Files whose size was not known when they were written, as
/// ffmpeg and sox leave them in a pipe, go on to the end of the file. Throws MissingInput; DataError
/// where the file is something else, compressed, truncated or empty, or its header makes no sense;
/// IoError.
WavForm read_wav_form(const FilePart& path);

/// Reads a WAV file as the mean of its channels. Throws what read_wav_form throws, and DataError
/// where a sample is not finite.
Sound read_wav(const FilePart& path);

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

/// Reads WAV files of any rate as 16,000 samples a second. It keeps the filter of each rate that it
/// met, and serves one thread.
class SpeechReader {
 public:
  /// Throws what read_wav throws.
  std::vector<float> read(const FilePart& path);

 private:
  std::map<std::int64_t, Resampling> filters_;  // by the rate of the file
};

}  // namespace hybrid_trainer
