#pragma once

#include <cstddef>
#include <cstdint>
#include <filesystem>

#include "hybrid_trainer/audio/sound.h"
#include "hybrid_trainer/files/input_file.h"

namespace hybrid_trainer {

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

/// Writes a new WAV file of one channel, with 16-bit samples, which are rounded and cut at full
/// scale, or 32-bit floats. Throws IoError, also where something stands at the path.
void write_wav(const std::filesystem::path& path, const Sound& sound,
               WavSamples samples = WavSamples::kInteger16);

}  // namespace hybrid_trainer
