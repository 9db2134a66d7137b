#include "hybrid_trainer/audio/wav_file.h"

#include <algorithm>
#include <bit>
#include <cmath>
#include <cstring>
#include <string>
#include <vector>

#include "hybrid_trainer/core/error.h"
#include "hybrid_trainer/core/narrow.h"
#include "hybrid_trainer/files/input_file.h"
#include "hybrid_trainer/files/output_file.h"
#include "src/audio/wav_header.h"

namespace hybrid_trainer {
namespace {

template <class T>
T from_bytes(const unsigned char* bytes) {
  T value;
  std::memcpy(&value, bytes, sizeof(T));
  return value;
}

double unsigned_8(const unsigned char* bytes) { return (bytes[0] - 128) / 128.0; }
double integer_16(const unsigned char* bytes) { return from_bytes<std::int16_t>(bytes) / 0x1p15; }
double integer_24(const unsigned char* bytes) {
  return std::bit_cast<std::int32_t>(std::uint32_t{bytes[0]} << 8 | std::uint32_t{bytes[1]} << 16 |
                                     std::uint32_t{bytes[2]} << 24) /
         0x1p31;
}
double integer_32(const unsigned char* bytes) { return from_bytes<std::int32_t>(bytes) / 0x1p31; }
double float_32(const unsigned char* bytes) { return from_bytes<float>(bytes); }
double float_64(const unsigned char* bytes) { return from_bytes<double>(bytes); }

/// Means over the channels of frames. `decode` gives one sample of `width` bytes.
template <double decode(const unsigned char*)>
void mix(const unsigned char* bytes, std::size_t width, std::int64_t channels, std::int64_t frames,
         float* to) {
  for (std::int64_t i = 0; i < frames; ++i) {
    double sum = 0;
    for (std::int64_t c = 0; c < channels; ++c, bytes += width) sum += decode(bytes);
    to[i] = static_cast<float>(sum / static_cast<double>(channels));
  }
}

using Mixer = void (*)(const unsigned char*, std::size_t, std::int64_t, std::int64_t, float*);

Mixer mixer_of(WavSamples samples) {
  switch (samples) {
    case WavSamples::kUnsigned8:
      return mix<unsigned_8>;
    case WavSamples::kInteger16:
      return mix<integer_16>;
    case WavSamples::kInteger24:
      return mix<integer_24>;
    case WavSamples::kInteger32:
      return mix<integer_32>;
    case WavSamples::kFloat32:
      return mix<float_32>;
    case WavSamples::kFloat64:
      break;
  }
  return mix<float_64>;
}

void append_number(std::string& bytes, std::uint32_t value, int count) {
  for (int i = 0; i < count; ++i) bytes += static_cast<char>(value >> (8 * i) & 0xFF);
}

std::string wav_header(const Sound& sound, WavSamples samples) {
  const auto width = narrow<std::uint32_t>(bytes_of(samples));
  const auto rate = narrow<std::uint32_t>(sound.rate);
  const auto data = narrow<std::uint32_t>(sound.samples.size() * width);
  std::string header = "RIFF";
  append_number(header, 36 + data + data % 2, 4);
  header += "WAVEfmt ";
  append_number(header, 16, 4);
  append_number(header, samples == WavSamples::kFloat32 ? 3 : 1, 2);
  append_number(header, 1, 2);
  append_number(header, rate, 4);
  append_number(header, rate * width, 4);
  append_number(header, width, 2);
  append_number(header, 8 * width, 2);
  header += "data";
  append_number(header, data, 4);
  return header;
}

}  // namespace

std::size_t bytes_of(WavSamples samples) {
  switch (samples) {
    case WavSamples::kUnsigned8:
      return 1;
    case WavSamples::kInteger16:
      return 2;
    case WavSamples::kInteger24:
      return 3;
    case WavSamples::kFloat64:
      return 8;
    case WavSamples::kInteger32:
    case WavSamples::kFloat32:
      break;
  }
  return 4;
}

WavForm read_wav_form(const FilePart& path) { return wav_form_of(InputFile(path)); }

Sound read_wav(const FilePart& path) {
  constexpr std::int64_t kBytesAtOnce = 1 << 20;
  const InputFile file(path);
  const WavForm form = wav_form_of(file);
  const Mixer mixer = mixer_of(form.samples);
  const std::size_t width = bytes_of(form.samples);
  const std::int64_t frame_bytes = static_cast<std::int64_t>(width) * form.channels;
  const std::int64_t at_once = std::max<std::int64_t>(1, kBytesAtOnce / frame_bytes);
  Sound sound{std::vector<float>(static_cast<std::size_t>(form.frames)), form.rate};
  std::vector<unsigned char> bytes(
      static_cast<std::size_t>(std::min(at_once, form.frames) * frame_bytes));
  for (std::int64_t first = 0; first < form.frames; first += at_once) {
    const std::int64_t count = std::min(at_once, form.frames - first);
    file.read_at(bytes.data(), static_cast<std::size_t>(count * frame_bytes),
                 form.offset + static_cast<std::size_t>(first * frame_bytes));
    mixer(bytes.data(), width, form.channels, count, sound.samples.data() + first);
  }
  const auto bad =
      std::ranges::find_if_not(sound.samples, [](float x) { return std::isfinite(x); });
  if (bad != sound.samples.end())
    throw DataError(concat(path.native(), ": sample ", bad - sound.samples.begin() + 1, " is ",
                           *bad, "; want finite numbers"));
  return sound;
}

void write_wav(const std::filesystem::path& path, const Sound& sound, WavSamples samples) {
  require(samples == WavSamples::kInteger16 || samples == WavSamples::kFloat32,
          "WAV files are written with 16-bit integers or 32-bit floats");
  require(sound.samples.size() < (std::size_t{1} << 30), "a WAV file holds less than 4 GiB");
  OutputFile file(path, OutputFile::Existing::kRefuse);
  file.write(wav_header(sound, samples));
  if (samples == WavSamples::kFloat32) {
    file.write(sound.samples.data(), sound.samples.size() * sizeof(float));
  } else {
    std::vector<std::int16_t> rounded;
    rounded.reserve(sound.samples.size());
    for (const float sample : sound.samples)
      rounded.push_back(
          narrow<std::int16_t>(std::lrint(std::clamp(sample * 0x1p15f, -0x1p15f, 32767.0f))));
    file.write(rounded.data(), rounded.size() * sizeof(std::int16_t));
  }
  file.close();
}

}  // namespace hybrid_trainer
