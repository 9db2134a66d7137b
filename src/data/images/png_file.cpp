#include <png.h>
#include <csetjmp>

#include "hybrid_trainer/core/error.h"
#include "src/data/images/picture_formats.h"

namespace hybrid_trainer {

namespace {

using namespace std::string_view_literals;

constexpr std::string_view kPngMagic = "\x89PNG\r\n\x1A\n"sv;

/// libpng reports errors by longjmp: functions that `succeeds` calls have no local objects with
/// destructors.
class PngReader {
 public:
  PngReader(std::string_view bytes, const std::string& path)
      : bytes_(bytes.size()), rest_(bytes), path_(path) {
    png_ = png_create_read_struct(PNG_LIBPNG_VER_STRING, this, on_error, on_warning);
    info_ = png_ == nullptr ? nullptr : png_create_info_struct(png_);
    if (info_ == nullptr) {
      png_destroy_read_struct(&png_, &info_, nullptr);
      throw DataError(concat(path_, ": libpng cannot allocate memory for it"));
    }
    png_set_read_fn(png_, this, on_read);
  }
  ~PngReader() { png_destroy_read_struct(&png_, &info_, nullptr); }
  PngReader(const PngReader&) = delete;
  PngReader& operator=(const PngReader&) = delete;

  PictureForm form() {
    if (!succeeds([&] { read_header(); })) refuse();
    const PictureForm form{PictureKind::kPng, png_get_image_height(png_, info_),
                           png_get_image_width(png_, info_)};
    check_compressed_size(form.height, form.width, bytes_, path_);
    if (png_get_bit_depth(png_, info_) == 16 &&
        (png_get_color_type(png_, info_) & PNG_COLOR_MASK_COLOR) == 0)
      throw DataError(concat(path_,
                             ": is a 16-bit grayscale image, which programs convert to 8 bits "
                             "differently; convert it to 8 bits"));
    return form;
  }

  Picture picture() {
    const PictureForm size = form();
    if (!succeeds([&] { set_conversions(); })) refuse();
    Picture picture = Picture::of_size(size.height, size.width);
    require(png_get_rowbytes(png_, info_) == static_cast<std::size_t>(size.width * kColors),
            "libpng: a converted row must have three bytes per pixel");
    std::vector<png_bytep> rows;
    for (std::int64_t y = 0; y < size.height; ++y) rows.push_back(picture.at(y, 0));
    if (!succeeds([&] { png_read_image(png_, rows.data()); })) refuse();
    // Chunks after the pixels may be damaged or missing.
    const bool has_end = succeeds([&] { png_read_end(png_, info_); });
    return upright(std::move(picture), has_end ? orientation() : 1);
  }

 private:
  static void on_error(png_structp png, png_const_charp message) {
    static_cast<PngReader*>(png_get_error_ptr(png))->problem_ = message;
    png_longjmp(png, 1);
  }
  static void on_warning(png_structp, png_const_charp) {}
  static void on_read(png_structp png, png_bytep to, std::size_t bytes) {
    auto* reader = static_cast<PngReader*>(png_get_io_ptr(png));
    if (reader->rest_.size() < bytes) {
      reader->is_truncated_ = true;
      png_error(png, "the file ends before its last pixel");
    }
    reader->rest_.copy(reinterpret_cast<char*>(to), bytes);
    reader->rest_.remove_prefix(bytes);
  }
  [[noreturn]] void refuse() const {
    throw DataError(
        concat(path_, ": the PNG file is ", is_truncated_ ? "truncated: " : "damaged: ", problem_));
  }

  template <class F>
  bool succeeds(const F& f) {
    if (setjmp(png_jmpbuf(png_)) != 0) return false;
    f();
    return true;
  }
  void read_header() {
    constexpr png_uint_32 kLongestSide = 1 << 24;
    constexpr std::size_t kMaxChunkBytes = std::size_t{8} << 20;
    // Does not decompress texts and profiles, of which a file may have a thousand.
    constexpr png_byte kIgnored[] = "iCCP\0iTXt\0tEXt\0zTXt\0sPLT";
    png_set_user_limits(png_, kLongestSide, kLongestSide);
    png_set_chunk_malloc_max(png_, kMaxChunkBytes);
    png_set_keep_unknown_chunks(png_, PNG_HANDLE_CHUNK_NEVER, kIgnored, sizeof kIgnored / 5);
    png_read_info(png_, info_);
  }
  void set_conversions() {
    png_set_strip_16(png_);
    png_set_palette_to_rgb(png_);
    png_set_expand_gray_1_2_4_to_8(png_);
    png_set_strip_alpha(png_);
    png_set_gray_to_rgb(png_);
    png_set_interlace_handling(png_);
    png_read_update_info(png_, info_);
  }
  int orientation() {
    png_uint_32 bytes = 0;
    png_bytep data = nullptr;
    if (png_get_eXIf_1(png_, info_, &bytes, &data) == 0) return 1;
    return exif_orientation({reinterpret_cast<const char*>(data), bytes});
  }

  std::size_t bytes_;
  std::string_view rest_;
  const std::string& path_;
  png_structp png_ = nullptr;
  png_infop info_ = nullptr;
  std::string problem_;
  bool is_truncated_ = false;
};

/// Returns whether the file reaches its last chunk, by the lengths of its chunks.
bool has_last_chunk(std::string_view bytes) {
  std::size_t at = kPngMagic.size();
  while (at + 12 <= bytes.size()) {
    std::size_t length = 0;
    for (std::size_t i = 0; i < 4; ++i)
      length = length << 8 | static_cast<unsigned char>(bytes[at + i]);
    if (bytes.substr(at + 4, 4) == "IEND") return true;
    at += 12 + length;
  }
  return false;
}

}  // namespace

bool is_png(std::string_view bytes) { return bytes.starts_with(kPngMagic); }

PictureForm png_form(std::string_view bytes, const std::string& path) {
  const PictureForm form = PngReader(bytes, path).form();
  if (!has_last_chunk(bytes))
    throw DataError(
        concat(path, ": the PNG file is truncated: it does not end with an IEND chunk"));
  return form;
}

Picture read_png(std::string_view bytes, const std::string& path) {
  return PngReader(bytes, path).picture();
}

}  // namespace hybrid_trainer
