#pragma once

#include <algorithm>
#include <cmath>

#include "src/core/narrow.h"
#include "src/data/audio/sound.h"
#include "src/files/output_file.h"

namespace hybrid_trainer {

/// Writes a mono WAV file of 16-bit samples, rounded and clipped, or of 32-bit floats.
inline void write_wav(const std::filesystem::path& path, const Sound& sound,
                      WavSamples samples = WavSamples::kInteger16) {
  const bool floats = samples == WavSamples::kFloat32;
  const auto width = narrow<std::uint32_t>(bytes_of(samples));
  const auto rate = narrow<std::uint32_t>(sound.rate);
  const auto data = narrow<std::uint32_t>(sound.samples.size() * width);
  std::string bytes;
  const auto add = [&](const auto& value, std::size_t count) {
    bytes.append(reinterpret_cast<const char*>(&value), count);
  };
  bytes += "RIFF";
  add(36 + data + data % 2, 4);
  bytes += "WAVEfmt ";
  add(16, 4);
  add(floats ? 3 : 1, 2);
  add(1, 2);
  add(rate, 4);
  add(rate * width, 4);
  add(width, 2);
  add(8 * width, 2);
  bytes += "data";
  add(data, 4);
  for (const float sample : sound.samples) {
    if (floats) {
      add(sample, 4);
    } else {
      add(narrow<std::int16_t>(std::lrint(std::clamp(sample * 0x1p15f, -0x1p15f, 32767.0f))), 2);
    }
  }
  OutputFile file(path, OutputFile::Existing::kRefuse);
  file.write(bytes);
  file.close();
}

}  // namespace hybrid_trainer
