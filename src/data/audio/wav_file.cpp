#include <algorithm>
#include <array>
#include <bit>
#include <cmath>
#include <cstdio>
#include <cstring>

#include "hybrid_trainer/core/error.h"
#include "hybrid_trainer/files/input_file.h"
#include "src/core/messages.h"
#include "src/core/narrow.h"
#include "src/data/audio/sound.h"
#include "src/files/text.h"

namespace hybrid_trainer {

namespace {

using namespace std::string_view_literals;

struct SoundKind {
  std::size_t at;
  std::string_view bytes;
  const char* name;
};

constexpr SoundKind kSoundKinds[] = {
    {0, "fLaC"sv, "a FLAC file"},
    {0, "OggS"sv, "an Ogg file (Vorbis or Opus)"},
    {0, "ID3"sv, "an MP3 file"},
    {0, "\xFF\xFB"sv, "an MP3 file"},
    {0, "\xFF\xFA"sv, "an MP3 file"},
    {0, "\xFF\xF3"sv, "an MP3 file"},
    {0, "\xFF\xF2"sv, "an MP3 file"},
    {0, "\xFF\xF1"sv, "an AAC file"},
    {0, "\xFF\xF9"sv, "an AAC file"},
    {4, "ftyp"sv, "an M4A or MP4 file"},
    {0, "FORM"sv, "an AIFF file"},
    {0, ".snd"sv, "an AU file"},
    {0, "caff"sv, "a Core Audio file"},
    {0, "RIFX"sv, "a big-endian WAV file (RIFX)"},
    {0, "riff"sv, "a Wave64 file"},
    {0, "wvpk"sv, "a WavPack file"},
    {0, "MAC "sv, "a Monkey's Audio file"},
    {0, "#!AMR"sv, "an AMR file"},
    {0, "\x30\x26\xB2\x75"sv, "a WMA file"},
    {0, "\x1A\x45\xDF\xA3"sv, "a WebM or Matroska file"},
    {8, "AVI "sv, "an AVI file"},
};

struct WavFormat {
  std::uint32_t code;
  const char* name;
};

constexpr WavFormat kCompressedFormats[] = {
    {0x0002, "Microsoft ADPCM"},
    {0x0006, "A-law"},
    {0x0007, "µ-law"},
    {0x0011, "IMA ADPCM"},
    {0x0014, "G.723 ADPCM"},
    {0x0031, "GSM 6.10"},
    {0x0040, "G.721 ADPCM"},
    {0x0045, "G.726 ADPCM"},
    {0x0050, "MPEG"},
    {0x0055, "MP3"},
    {0x0064, "G.726 ADPCM"},
    {0x00FF, "AAC"},
    {0x0092, "AC-3"},
    {0x0160, "Windows Media Audio"},
    {0x0161, "Windows Media Audio"},
    {0x0162, "Windows Media Audio"},
    {0x1610, "AAC"},
    {0x2000, "AC-3"},
    {0x674F, "Vorbis"},
    {0x704F, "Opus"},
    {0xF1AC, "FLAC"},
};

/// Returns "convert it first: ffmpeg -i … out.wav", for this file.
std::string wav_conversion_hint(const std::filesystem::path& path) {
  return concat("convert it first: ffmpeg -i ", shell_path(path), " -ar 16000 -ac 1 ",
                shell_path(path.stem().native() + "-16k.wav"));
}

/// Throws DataError if `begin`, the first bytes of `path`, are not from a WAV file.
void refuse_other_sound(std::string_view begin, const std::filesystem::path& path) {
  const bool is_wav =
      begin.starts_with("RIFF"sv) || begin.starts_with("RF64"sv) || begin.starts_with("BW64"sv);
  if (is_wav && begin.size() >= 12 && begin.substr(8, 4) == "WAVE"sv) return;
  for (const SoundKind& kind : kSoundKinds)
    if (begin.size() > kind.at && begin.substr(kind.at).starts_with(kind.bytes))
      throw DataError(
          concat(path.native(), ": is ", kind.name, ", not WAV; ", wav_conversion_hint(path)));
  refuse_container(begin, path);
  if (is_wav && begin.size() < 12)
    throw DataError(concat(path.native(), ": is truncated: it ends inside the WAV header, after ",
                           begin.size(), " bytes; copy it again"));
  throw DataError(
      concat(path.native(),
             ": is not a WAV file: it does not begin with RIFF and WAVE; if it contains audio, ",
             wav_conversion_hint(path)));
}

/// Returns the name of an unsupported format, such as "µ-law", or "format 0x1234".
std::string name_of_wav_format(std::uint32_t code) {
  for (const WavFormat& format : kCompressedFormats)
    if (format.code == code) return format.name;
  char text[24];
  std::snprintf(text, sizeof text, "format 0x%04X", code);
  return text;
}

using namespace std::string_view_literals;

constexpr std::uint32_t kIntegerFormat = 1, kFloatFormat = 3, kExtensibleFormat = 0xFFFE;
/// Bytes that follow the format's code in WAVE_FORMAT_EXTENSIBLE.
constexpr std::string_view kFormatTail =
    "\x00\x00\x00\x00\x10\x00\x80\x00\x00\xAA\x00\x38\x9B\x71"sv;
/// If a file is shorter than its data size, and the data size is at least this value, the size was
/// unknown when the header was written.
constexpr std::uint64_t kUnknownSize = 0x7FFF0000, kUnknownSize32 = 0xFFFFFFFF;
constexpr int kMaxChunks = 10'000;
constexpr std::int64_t kMinRate = 1'000, kMaxRate = 768'000, kMaxChannels = 1024;

std::uint64_t little_endian(std::string_view bytes, std::size_t at, int count) {
  std::uint64_t value = 0;
  for (int i = count - 1; i >= 0; --i)
    value = value << 8 | static_cast<unsigned char>(bytes[at + static_cast<std::size_t>(i)]);
  return value;
}

class WavHeaderReader {
 public:
  explicit WavHeaderReader(const InputFile& file) : file_(file) {}

  WavForm read() {
    const std::string start = bytes_at(0, std::min<std::size_t>(file_.bytes(), 64));
    refuse_other_sound(start, file_.path());
    riff_size_ = little_endian(start, 4, 4);
    std::uint64_t at = 12;
    for (int chunks = 0; at + 8 <= file_.bytes() && !(has_format_ && data_); ++chunks) {
      if (chunks == kMaxChunks) refuse(concat("has over ", kMaxChunks, " chunks"));
      const std::string head = bytes_at(at, 8);
      const std::uint64_t size = read_chunk(head.substr(0, 4), at + 8, little_endian(head, 4, 4));
      at += 8 + size + size % 2;
    }
    if (!has_format_) refuse("has no \"fmt \" chunk, which defines the sample format");
    if (!data_) refuse("contains no samples: it has no \"data\" chunk");
    count_frames();
    return form_;
  }

 private:
  struct Data {
    std::uint64_t offset, bytes;
  };

  [[noreturn]] void refuse(const std::string& problem) const {
    throw DataError(concat(file_.path().native(), ": ", problem));
  }

  std::string bytes_at(std::uint64_t offset, std::size_t count) const {
    std::string bytes(count, '\0');
    file_.read_at(bytes.data(), count, offset);
    return bytes;
  }

  std::uint64_t read_chunk(std::string_view id, std::uint64_t content, std::uint64_t size) {
    const std::uint64_t left = file_.bytes() - content;
    if (id == "data"sv) {
      data_ = Data{content, bytes_of_data(size, left)};
      return data_->bytes;
    }
    if (id == "fmt "sv || id == "ds64"sv) {
      constexpr std::uint64_t wanted = 16, most = 40;
      if (size < wanted || size > left)
        refuse(concat("its chunk \"", id, "\" has ", std::min(size, left), " bytes; want at least ",
                      std::max<std::uint64_t>(wanted, std::min<std::uint64_t>(size, most))));
      const std::string text = bytes_at(content, std::min<std::size_t>(size, most));
      if (id == "fmt "sv)
        read_format(text);
      else
        size_of_data_ = little_endian(text, 8, 8);
    }
    return size;
  }

  std::uint64_t bytes_of_data(std::uint64_t size, std::uint64_t left) const {
    if (size == kUnknownSize32 && size_of_data_) size = *size_of_data_;
    const bool is_finished = riff_size_ + 8 == file_.bytes();
    if (size == 0 && !is_finished) return left;
    if (size <= left) return size;
    if (size >= kUnknownSize && size <= kUnknownSize32) return left;
    refuse(concat("is truncated: its header declares ", size, " bytes of samples, but only ", left,
                  " follow; copy it again"));
  }

  void read_format(std::string_view text) {
    auto code = narrow<std::uint32_t>(little_endian(text, 0, 2));
    form_.channels = static_cast<std::int64_t>(little_endian(text, 2, 2));
    form_.rate = static_cast<std::int64_t>(little_endian(text, 4, 4));
    const std::uint64_t frame_bytes = little_endian(text, 12, 2), bits = little_endian(text, 14, 2);
    if (code == kExtensibleFormat) code = extended_format(text);
    if (form_.channels < 1 || form_.channels > kMaxChannels)
      refuse(concat("has ", form_.channels, " channels; want 1 to ", kMaxChannels));
    if (form_.rate < kMinRate || form_.rate > kMaxRate)
      refuse(concat("has ", form_.rate, " samples per second; want ", kMinRate, " to ", kMaxRate));
    form_.samples = samples_of(code, bits);
    const std::uint64_t want = bytes_of(form_.samples) * static_cast<std::uint64_t>(form_.channels);
    if (frame_bytes != want)
      refuse(concat("a frame of ", form_.channels, " channels of ", bits, " bits has ", frame_bytes,
                    " bytes; want ", want));
    has_format_ = true;
  }

  std::uint32_t extended_format(std::string_view text) const {
    if (text.size() < 40 || text.substr(26, 14) != kFormatTail)
      refuse(concat("has an unknown sample format (WAVE_FORMAT_EXTENSIBLE); ",
                    wav_conversion_hint(file_.path())));
    return narrow<std::uint32_t>(little_endian(text, 24, 2));
  }

  WavSamples samples_of(std::uint32_t code, std::uint64_t bits) const {
    if (code != kIntegerFormat && code != kFloatFormat)
      refuse(concat("its samples are compressed (", name_of_wav_format(code), "); ",
                    wav_conversion_hint(file_.path())));
    // A sample that does not fill its bytes uses the upper bits.
    const std::uint64_t bytes = (bits + 7) / 8;
    if (code == kFloatFormat && bits == 32) return WavSamples::kFloat32;
    if (code == kFloatFormat && bits == 64) return WavSamples::kFloat64;
    constexpr std::array kIntegers{WavSamples::kUnsigned8, WavSamples::kInteger16,
                                   WavSamples::kInteger24, WavSamples::kInteger32};
    if (code == kIntegerFormat && bytes >= 1 && bytes <= kIntegers.size())
      return kIntegers[bytes - 1];
    refuse(concat("has samples of ", bits, "-bit ", code == kFloatFormat ? "floats" : "integers",
                  "; want integers of 8, 16, 24 or 32 bits, or floats of 32 or 64 bits"));
  }

  void count_frames() {
    const std::uint64_t frame_bytes =
        bytes_of(form_.samples) * static_cast<std::uint64_t>(form_.channels);
    form_.offset = data_->offset;
    form_.frames = static_cast<std::int64_t>(data_->bytes / frame_bytes);
    if (form_.frames == 0) refuse("contains no samples");
  }

  const InputFile& file_;
  std::uint64_t riff_size_ = 0;
  std::optional<std::uint64_t> size_of_data_;  // data size in the header of an RF64 file
  bool has_format_ = false;
  std::optional<Data> data_;
  WavForm form_;
};

WavForm wav_form_of(const InputFile& file) { return WavHeaderReader(file).read(); }

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

/// Writes the mean of each frame over its channels. `decode` decodes a sample from `width` bytes.
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

constexpr Mixer kMixers[] = {mix<unsigned_8>, mix<integer_16>, mix<integer_24>,
                             mix<integer_32>, mix<float_32>,   mix<float_64>};

}  // namespace

std::size_t bytes_of(WavSamples samples) {
  static constexpr std::size_t kBytes[] = {1, 2, 3, 4, 4, 8};
  return kBytes[static_cast<std::size_t>(samples)];
}

WavForm read_wav_form(const FilePart& path) { return wav_form_of(InputFile(path)); }

Sound read_wav(const FilePart& path) {
  constexpr std::int64_t kBytesAtOnce = 1 << 20;
  const InputFile file(path);
  const WavForm form = wav_form_of(file);
  const Mixer mixer = kMixers[static_cast<std::size_t>(form.samples)];
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

}  // namespace hybrid_trainer
