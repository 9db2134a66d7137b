#include "src/audio/wav_header.h"

#include <algorithm>
#include <array>
#include <optional>
#include <string>
#include <string_view>

#include "hybrid_trainer/core/error.h"
#include "hybrid_trainer/core/narrow.h"
#include "src/audio/sound_kinds.h"

namespace hybrid_trainer {
namespace {

using namespace std::string_view_literals;

constexpr std::uint32_t kIntegerFormat = 1, kFloatFormat = 3, kExtensibleFormat = 0xFFFE;
/// Behind the code of a format in WAVE_FORMAT_EXTENSIBLE.
constexpr std::string_view kFormatTail =
    "\x00\x00\x00\x00\x10\x00\x80\x00\x00\xAA\x00\x38\x9B\x71"sv;
/// Sizes of data from here on were written before the size was known, where the file is shorter.
constexpr std::uint64_t kUnknownSize = 0x7FFF0000, kUnknownSize32 = 0xFFFFFFFF;
constexpr int kMostChunks = 10'000;
constexpr std::int64_t kLowestRate = 1'000, kHighestRate = 768'000, kMostChannels = 1024;

std::uint64_t little_endian(std::string_view bytes, std::size_t at, int count) {
  std::uint64_t value = 0;
  for (int i = count - 1; i >= 0; --i)
    value = value << 8 | static_cast<unsigned char>(bytes[at + static_cast<std::size_t>(i)]);
  return value;
}

/// Walks over a file's chunks.
class WavHeaderReader {
 public:
  explicit WavHeaderReader(const InputFile& file) : file_(file) {}

  WavForm read() {
    const std::string start = bytes_at(0, std::min<std::size_t>(file_.bytes(), 64));
    refuse_other_sound(start, file_.path());
    riff_size_ = little_endian(start, 4, 4);
    std::uint64_t at = 12;
    for (int chunks = 0; at + 8 <= file_.bytes() && !(has_format_ && data_); ++chunks) {
      if (chunks == kMostChunks) refuse(concat("has over ", kMostChunks, " chunks"));
      const std::string head = bytes_at(at, 8);
      const std::uint64_t size = read_chunk(head.substr(0, 4), at + 8, little_endian(head, 4, 4));
      at += 8 + size + size % 2;
    }
    if (!has_format_) refuse("has no chunk \"fmt \", which says how its samples stand");
    if (!data_) refuse("ends before its samples: it has no chunk \"data\"");
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

  /// Returns the size of the chunk's content.
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
    refuse(concat("is truncated: its header announces ", size, " bytes of samples, and ", left,
                  " follow; copy it again"));
  }

  void read_format(std::string_view text) {
    auto code = narrow<std::uint32_t>(little_endian(text, 0, 2));
    form_.channels = static_cast<std::int64_t>(little_endian(text, 2, 2));
    form_.rate = static_cast<std::int64_t>(little_endian(text, 4, 4));
    const std::uint64_t frame_bytes = little_endian(text, 12, 2), bits = little_endian(text, 14, 2);
    if (code == kExtensibleFormat) code = extended_format(text);
    if (form_.channels < 1 || form_.channels > kMostChannels)
      refuse(concat("has ", form_.channels, " channels; want 1 to ", kMostChannels));
    if (form_.rate < kLowestRate || form_.rate > kHighestRate)
      refuse(concat("has ", form_.rate, " samples a second; want ", kLowestRate, " to ",
                    kHighestRate));
    form_.samples = samples_of(code, bits);
    const std::uint64_t want = bytes_of(form_.samples) * static_cast<std::uint64_t>(form_.channels);
    if (frame_bytes != want)
      refuse(concat("a frame of ", form_.channels, " channels of ", bits, " bits has ", frame_bytes,
                    " bytes; want ", want));
    has_format_ = true;
  }

  std::uint32_t extended_format(std::string_view text) const {
    if (text.size() < 40 || text.substr(26, 14) != kFormatTail)
      refuse(concat("its samples are of an unknown kind (WAVE_FORMAT_EXTENSIBLE); ",
                    way_to_wav(file_.path())));
    return narrow<std::uint32_t>(little_endian(text, 24, 2));
  }

  WavSamples samples_of(std::uint32_t code, std::uint64_t bits) const {
    if (code != kIntegerFormat && code != kFloatFormat)
      refuse(concat("its samples are compressed (", name_of_wav_format(code), "); ",
                    way_to_wav(file_.path())));
    // Fewer bits than a byte holds are its upper ones.
    const std::uint64_t bytes = (bits + 7) / 8;
    if (code == kFloatFormat && bits == 32) return WavSamples::kFloat32;
    if (code == kFloatFormat && bits == 64) return WavSamples::kFloat64;
    constexpr std::array kIntegers{WavSamples::kUnsigned8, WavSamples::kInteger16,
                                   WavSamples::kInteger24, WavSamples::kInteger32};
    if (code == kIntegerFormat && bytes >= 1 && bytes <= kIntegers.size())
      return kIntegers[bytes - 1];
    refuse(concat("its samples are ", code == kFloatFormat ? "floats" : "integers", " of ", bits,
                  " bits; want integers of 8, 16, 24 or 32, or floats of 32 or 64"));
  }

  void count_frames() {
    const std::uint64_t frame_bytes =
        bytes_of(form_.samples) * static_cast<std::uint64_t>(form_.channels);
    form_.offset = data_->offset;
    form_.frames = static_cast<std::int64_t>(data_->bytes / frame_bytes);
    if (form_.frames == 0) refuse("holds no samples");
  }

  const InputFile& file_;
  std::uint64_t riff_size_ = 0;
  std::optional<std::uint64_t> size_of_data_;  // of RF64
  bool has_format_ = false;
  std::optional<Data> data_;
  WavForm form_;
};

}  // namespace

WavForm wav_form_of(const InputFile& file) { return WavHeaderReader(file).read(); }

}  // namespace hybrid_trainer
