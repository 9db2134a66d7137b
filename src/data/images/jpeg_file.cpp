#include <cstdio>  // jpeglib.h needs FILE

#include <jerror.h>
#include <jpeglib.h>
#include <algorithm>
#include <csetjmp>

#include "hybrid_trainer/core/error.h"
#include "src/core/narrow.h"
#include "src/data/images/picture_formats.h"

namespace hybrid_trainer {

namespace {

using namespace std::string_view_literals;

constexpr std::uint32_t kOrientationTag = 0x0112, kShort = 3;

class TiffBytes {
 public:
  explicit TiffBytes(std::string_view bytes)
      : bytes_(bytes), is_little_endian_(bytes.starts_with("II")) {}
  bool has(std::size_t at, std::size_t count) const {
    return at <= bytes_.size() && count <= bytes_.size() - at;
  }
  std::uint32_t number(std::size_t at, std::size_t count) const {
    std::uint32_t value = 0;
    for (std::size_t i = 0; i < count; ++i) {
      const std::size_t from = is_little_endian_ ? at + count - 1 - i : at + i;
      value = value << 8 | static_cast<unsigned char>(bytes_[from]);
    }
    return value;
  }

 private:
  std::string_view bytes_;
  bool is_little_endian_;
};

constexpr int kExifMarker = JPEG_APP0 + 1;
constexpr long kMaxMemory = 512L << 20;  // memory in addition to the picture
constexpr std::string_view kExifStart = "Exif\0\0"sv;

/// Decodes one JPEG file with libjpeg. libjpeg reports errors by longjmp: functions that `succeeds`
/// calls have no local objects with destructors.
class JpegReader {
 public:
  JpegReader(std::string_view bytes, const std::string& path) : bytes_(bytes), path_(path) {
    jpeg_.err = jpeg_std_error(&errors_);
    errors_.error_exit = on_error;
    errors_.emit_message = on_message;
    jpeg_.client_data = this;
    if (!succeeds([&] { open(); })) {
      jpeg_destroy_decompress(&jpeg_);
      refuse();
    }
    progress_.progress_monitor = on_progress;
    jpeg_.progress = &progress_;
  }
  ~JpegReader() { jpeg_destroy_decompress(&jpeg_); }
  JpegReader(const JpegReader&) = delete;
  JpegReader& operator=(const JpegReader&) = delete;

  PictureForm form() {
    if (!succeeds([&] { jpeg_read_header(&jpeg_, TRUE); }) || is_cut_off_) refuse();
    const PictureForm form{PictureKind::kJpeg, jpeg_.image_height, jpeg_.image_width};
    check_compressed_size(form.height, form.width, bytes_.size(), path_);
    return form;
  }
  /// Returns whether an end-of-image marker follows the header.
  bool has_end() const {
    const std::size_t at = bytes_.size() - jpeg_.src->bytes_in_buffer;
    return bytes_.substr(at).find("\xFF\xD9"sv) != bytes_.npos;
  }

  Picture picture() {
    const PictureForm size = form();
    const bool has_four_inks = jpeg_.num_components == 4;
    jpeg_.out_color_space = has_four_inks ? JCS_CMYK : JCS_RGB;
    if (!succeeds([&] { jpeg_start_decompress(&jpeg_); })) refuse();
    Picture picture = Picture::of_size(size.height, size.width);
    std::vector<JSAMPLE> row(static_cast<std::size_t>(size.width * jpeg_.output_components));
    for (std::int64_t y = 0; y < size.height; ++y) {
      JSAMPROW to = row.data();
      JDIMENSION rows = 0;
      const bool is_read = succeeds([&] { rows = jpeg_read_scanlines(&jpeg_, &to, 1); });
      if (!is_read || rows != 1 || is_cut_off_ || is_damaged_) refuse();
      if (has_four_inks) {
        mix_inks(row, picture.at(y, 0));
      } else {
        std::ranges::copy(row, picture.at(y, 0));
      }
    }
    return upright(std::move(picture), orientation());
  }

 private:
  static JpegReader& of(j_common_ptr jpeg) { return *static_cast<JpegReader*>(jpeg->client_data); }
  static void on_error(j_common_ptr jpeg) {
    char message[JMSG_LENGTH_MAX];
    jpeg->err->format_message(jpeg, message);
    const bool is_large = jpeg->err->msg_code == JERR_NO_BACKING_STORE;
    of(jpeg).problem_ = is_large
                            ? concat("decoding its several scans needs more than ",
                                     kMaxMemory >> 20, " MiB; want a file with one scan (baseline)")
                            : message;
    std::longjmp(of(jpeg).before_, 1);
  }
  static void on_message(j_common_ptr jpeg, int level) {
    if (level >= 0) return;
    JpegReader& reader = of(jpeg);
    const int code = jpeg->err->msg_code;
    if (code == JWRN_JPEG_EOF) reader.is_cut_off_ = true;
    if (code == JWRN_HIT_MARKER || code == JWRN_HUFF_BAD_CODE) reader.is_damaged_ = true;
    if (!reader.problem_.empty() || !(reader.is_cut_off_ || reader.is_damaged_)) return;
    char message[JMSG_LENGTH_MAX];
    jpeg->err->format_message(jpeg, message);
    reader.problem_ = message;
  }
  /// Refuses files with many passes: a small file may have so many that decoding takes hours.
  static void on_progress(j_common_ptr jpeg) {
    constexpr int kMaxPasses = 500;
    const auto* decompressor = reinterpret_cast<j_decompress_ptr>(jpeg);
    if (decompressor->input_scan_number <= kMaxPasses) return;
    of(jpeg).problem_ = concat("it has more than ", kMaxPasses, " scans");
    std::longjmp(of(jpeg).before_, 1);
  }
  [[noreturn]] void refuse() const {
    throw DataError(
        concat(path_, ": the JPEG file is ", is_cut_off_ ? "truncated: " : "damaged: ", problem_));
  }

  template <class F>
  bool succeeds(const F& f) {
    if (setjmp(before_) != 0) return false;
    f();
    return true;
  }
  void open() {
    jpeg_create_decompress(&jpeg_);
    jpeg_.mem->max_memory_to_use = kMaxMemory;
    jpeg_save_markers(&jpeg_, kExifMarker, 0xFFFF);
    jpeg_mem_src(&jpeg_, reinterpret_cast<const unsigned char*>(bytes_.data()), bytes_.size());
  }

  /// Converts a row of cyan, magenta, yellow and black, which Adobe stores inverted, to RGB.
  void mix_inks(const std::vector<JSAMPLE>& row, std::uint8_t* to) const {
    for (std::size_t x = 0; x < row.size() / 4; ++x) {
      const int black = row[4 * x + 3];
      for (std::size_t c = 0; c < 3; ++c) {
        const int scaled = (255 - row[4 * x + c]) * black + 128;
        const int share = ((scaled >> 8) + scaled) >> 8;
        *to++ = narrow<std::uint8_t>(std::clamp(black - share, 0, 255));
      }
    }
  }

  int orientation() const {
    for (jpeg_saved_marker_ptr marker = jpeg_.marker_list; marker != nullptr;
         marker = marker->next) {
      const std::string_view data(reinterpret_cast<const char*>(marker->data), marker->data_length);
      if (marker->marker == kExifMarker && data.starts_with(kExifStart))
        return exif_orientation(data.substr(kExifStart.size()));
    }
    return 1;
  }

  std::string_view bytes_;
  const std::string& path_;
  jpeg_decompress_struct jpeg_{};
  jpeg_error_mgr errors_{};
  jpeg_progress_mgr progress_{};
  std::jmp_buf before_{};
  std::string problem_;
  bool is_cut_off_ = false, is_damaged_ = false;
};

}  // namespace

int exif_orientation(std::string_view tiff) {
  constexpr std::size_t kEntryBytes = 12;
  if (!tiff.starts_with("II") && !tiff.starts_with("MM")) return 1;
  const TiffBytes bytes(tiff);
  if (!bytes.has(0, 8)) return 1;
  const std::size_t first = bytes.number(4, 4);
  if (!bytes.has(first, 2)) return 1;
  const std::size_t entries = bytes.number(first, 2);
  for (std::size_t i = 0; i < entries; ++i) {
    const std::size_t at = first + 2 + i * kEntryBytes;
    if (!bytes.has(at, kEntryBytes)) return 1;
    if (bytes.number(at, 2) != kOrientationTag) continue;
    if (bytes.number(at + 2, 2) != kShort || bytes.number(at + 4, 4) != 1) return 1;
    const std::uint32_t value = bytes.number(at + 8, 2);
    return value >= 1 && value <= 8 ? narrow<int>(value) : 1;
  }
  return 1;
}

bool is_jpeg(std::string_view bytes) { return bytes.starts_with("\xFF\xD8\xFF"sv); }

PictureForm jpeg_form(std::string_view bytes, const std::string& path) {
  JpegReader reader(bytes, path);
  const PictureForm form = reader.form();
  if (!reader.has_end())
    throw DataError(concat(path, ": the JPEG file is truncated: it has no end marker"));
  return form;
}

Picture read_jpeg(std::string_view bytes, const std::string& path) {
  return JpegReader(bytes, path).picture();
}

}  // namespace hybrid_trainer
